"""Build the package from this tree alone: setuptools would add the modules that an earlier build left in build/lib."""

import shutil

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildAnew(build_py):
    """Step of setuptools that copies the modules, into an empty folder."""

    def run(self) -> None:
        """Empty the folder of an earlier build, then copy."""
        if not self.editable_mode:
            shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


setup(cmdclass={"build_py": BuildAnew})
