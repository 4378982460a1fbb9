"""Keep torch's compiler, its distributed tensors and scipy's optimizers out of a process that has no GPU.

torchvision, timm, transformers and torch itself take a few names of them when they are imported or load a model, for
1.1 CPU s and 1,000 modules a process; models on CPUs are never compiled, distributed or trained. Importing this module
puts modules of these few names in place of the real ones. Any other name, or a call of one that is no decorator,
imports the real module, and the stand-ins are gone.
"""

import os
import sys
from importlib import import_module
from types import ModuleType
from typing import Any

import torch.compiler
import torch.distributed

COMPILER = "torch._dynamo"
# By module, the name that torchvision.ops.roi_align, transformers.masking_utils and transformers.loss import.
CALLED = {
    f"{COMPILER}.utils": "is_compile_supported",
    f"{COMPILER}._trace_wrapped_higher_order_op": "TransformGetItemToIndex",
    "scipy.optimize": "linear_sum_assignment",
}
# Decorators, of timm.models.naflexvit, transformers.modeling_utils and transformers.integrations.deepgemm. Torch uses
# the last where it makes a tensor without data, as transformers does of each weight that it loads.
DECORATORS = ("allow_in_graph", "assume_constant_result", "disable")
_REAL = {name: getattr(torch.compiler, name) for name in DECORATORS}


class _StandIn(ModuleType):
    """A module of few names; the real one is imported for any other."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and (self.__name__, name) != (COMPILER, "__path__"):  # asked of every module
            raise AttributeError(name)
        for module, each in list(sys.modules.items()):
            if isinstance(each, _StandIn) and module.partition(".")[0] == self.__name__.partition(".")[0]:
                del sys.modules[module]
        if torch.__dict__.get("_dynamo") is self:
            del torch._dynamo
        torch.compiler.__dict__.update(_REAL)
        return getattr(import_module(self.__name__), name)


def _calling(module: str, name: str) -> ModuleType:
    """Return a stand-in whose ``name`` calls the real one."""
    found = _StandIn(module)
    found.__dict__[name] = lambda *values, **named: found.__getattr__(name)(*values, **named)
    return found


def _unchanged(function: Any = None, *_: Any, **__: Any) -> Any:
    """Stand for a decorator that changes compiled code alone."""
    return function or _unchanged


if os.environ.get("CUDA_VISIBLE_DEVICES") == "" and COMPILER not in sys.modules:
    sys.modules.update({module: _calling(module, name) for module, name in CALLED.items() if module not in sys.modules})
    torch._dynamo = sys.modules[COMPILER] = _StandIn(COMPILER)
    for module in (torch._dynamo, torch.compiler):
        module.__dict__.update(dict.fromkeys(DECORATORS, _unchanged))
    torch.distributed.is_available = lambda: False  # as in a build of torch without it
