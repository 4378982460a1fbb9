import numpy as np
import pytest

from ops.batch import length, take


def test_the_length_of_a_batch_is_that_of_its_columns():
    assert length({"a": [1, 2], "b": np.zeros((2, 5))}) == 2
    assert length({}) == 0


def test_columns_of_different_lengths_are_a_bug():
    with pytest.raises(ValueError, match="differ in length"):
        length({"a": [1, 2], "b": [1]})


def test_rows_are_taken_in_the_asked_order_from_lists_and_arrays():
    taken = take({"a": ["x", "y", "z"], "b": np.array([1, 2, 3])}, [2, 0])
    assert taken["a"] == ["z", "x"]
    assert taken["b"].tolist() == [3, 1]
