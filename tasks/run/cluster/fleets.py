"""Keep the fleet of a model on a Ray cluster from step to step of a run: loading a large model takes minutes."""

from collections.abc import Callable
from math import ceil

from pairmill.tasks.run.cluster.on_ray import Fleet
from pairmill.tasks.run.cluster.ray_nodes import free
from pairmill.tasks.run.place.resources import Resources, room


class Fleets:
    """The fleets that finished steps of a run have left.

    A step takes over the fleet of its model if it asks for the same resources. All others end as soon as the machines
    have no room for a step's own fleet beside them. A fleet without a model has nothing loaded and ends with its step.

    Args:
        keeps: Whether fleets are kept at all; else each ends with its step.
    """

    def __init__(self, keeps: bool = False) -> None:
        self._keeps = keeps
        self._left: dict[tuple[str, Resources], Fleet] = {}

    def take(self, model: str, asked: Resources, items: int, build: Callable[[], Fleet]) -> Fleet:
        """Return the fleet that was left for ``model`` with the resources ``asked``, else what ``build`` returns.

        ``items`` is the number of items at hand, by which the room for a new fleet is judged.
        """
        if fleet := self._left.pop((model, asked), None):
            return fleet
        if self._left and room(asked, free()) < min(asked.most, ceil(items / asked.lanes)):
            self.close()
        return build()

    def give_back(self, model: str, asked: Resources, fleet: Fleet, is_idle: bool) -> None:
        """Keep a step's fleet, or end it if it may not be kept; ``is_idle`` says that it has no item."""
        if self._keeps and model and is_idle:
            self._left[model, asked] = fleet
        else:
            fleet.close()

    def close(self) -> None:
        """End all fleets that were left."""
        while self._left:
            self._left.popitem()[1].close()
