"""Trellis networks with scikit-learn's interface: `fit(X, y)` and `predict(X)` on series.

    from keras_trellis.estimators import SeriesClassifier, SeriesRegressor

They need the extra `estimators`: `pip install 'keras_trellis[estimators]'`.
"""

try:
    import sklearn  # noqa: F401
except ImportError as error:
    raise ImportError(
        "keras_trellis.estimators needs scikit-learn: pip install "
        "'keras_trellis[estimators]'"
    ) from error

from keras_trellis.estimators.series import SeriesClassifier, SeriesRegressor

__all__ = ["SeriesClassifier", "SeriesRegressor"]
