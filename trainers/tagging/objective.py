"""What a model of tags learns, and how it is scored."""

import numpy as np

from trainers.time_series.objectives import Classes, Score


class Tags(Classes):
    """Cross entropy of one class a step, scored by the mean of the classes' F1 scores.

    The score has the F1 of each class too, and how often a class was taken for another.
    """

    shares = ("accuracy", "f1")

    def rate_steps(self, log_probs: np.ndarray, targets: np.ndarray) -> Score:
        """Returns the score of log-probabilities `[N, classes]`, of N steps."""
        score = super().rate_steps(log_probs, targets)
        classes = self._facts.classes
        matrix = np.zeros((len(classes), len(classes)), int)
        np.add.at(matrix, (targets, log_probs.argmax(-1)), 1)
        rated = zip(classes, f1_scores(matrix), strict=True)
        by_class = {f"{name}_f1": value for name, value in rated if value is not None}
        mean = float(np.mean([*by_class.values()]))
        values = {"f1": mean, **score.values, **by_class}
        return score._replace(values=values, confusion=matrix.tolist())


def f1_scores(matrix: np.ndarray) -> list[float | None]:
    """Returns the F1 score of each class in percent, 2 TP / (2 TP + FP + FN).

    Args:
        matrix: counts `[classes, classes]`, a row for each true class.

    Returns:
        one number a class; None for a class that is neither there nor predicted.
    """
    right, counts = np.diag(matrix), matrix.sum(0) + matrix.sum(1)
    return [
        200 * float(hits) / float(count) if count else None
        for hits, count in zip(right, counts, strict=True)
    ]
