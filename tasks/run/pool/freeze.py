"""Exempt all objects created so far from garbage collection. The fork server imports this module last, before any fork.

A collection writes to every object that it visits. In a forked worker each write copies a page: 100 MB a worker for
torch alone.
"""

import gc

gc.collect()
gc.freeze()
