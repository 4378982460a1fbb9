"""Slow twin of ops/whole/components.py: a walk from every node."""


def walk(n: int, edges: list[tuple[int, int]]) -> list[int]:
    """For each node the smallest node that it is connected with."""
    neighbours: list[set[int]] = [{node} for node in range(n)]
    for left, right in edges:
        neighbours[left].add(right)
        neighbours[right].add(left)
    labels = [-1] * n
    for start in range(n):  # in ascending order, so the first to reach a node is the smallest
        waiting = [start] if labels[start] < 0 else []
        while waiting:
            node = waiting.pop()
            if labels[node] < 0:
                labels[node] = start
                waiting.extend(neighbours[node])
    return labels
