"""Placements of the tests' stages."""

from pairmill.tasks.run.place.placement import ModelPool, Placement

FED = Placement(workers=1, models={"clip": ModelPool(gpus=0, feeders=2, replicas=(1, 1))})
