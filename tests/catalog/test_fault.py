from catalog import fault as of_catalog
from ops import fault as of_ops


def test_ops_and_catalog_know_the_same_reasons_though_neither_imports_the_other() -> None:
    assert tuple(of_catalog.REASONS) == tuple(of_ops.REASONS)
