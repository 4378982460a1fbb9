"""Freeze what is imported so far: the fork server imports this module last, once, before it forks a worker.

A collection writes to every object that it looks at, which copies the page: 100 MB a worker of torch's alone.
"""

import gc

gc.collect()
gc.freeze()
