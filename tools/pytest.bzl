"""A folder of tests that pytest runs."""

load("@rules_python//python:py_library.bzl", "py_library")
load("@rules_python//python:py_test.bzl", "py_test")

def pytest_folder(name, deps, data = []):
    """One test for each `test_*.py`, and a library of all Python files of the folder.

    Subfolders without a BUILD file belong to it.

    Args:
      name: name of the library.
      deps: what the files import, pytest and `//tests` aside.
      data: what the tests read, `testdata` aside.
    """
    py_library(
        name = name,
        testonly = True,
        srcs = native.glob(["**/*.py"]),
        data = native.glob(
            ["testdata/**"],
            allow_empty = True,
        ) + data,
        deps = deps + ["//tools"],
    )
    shared = [] if native.package_name() == "tests" else ["//tests"]
    for file in native.glob(["test_*.py"]):
        py_test(
            name = file[:-len(".py")],
            srcs = [file, "//tools:run_pytest.py"],
            main = "//tools:run_pytest.py",
            args = ["$(location %s)" % file],
            data = ["//:pyproject.toml"],
            deps = [":" + name] + shared,
        )
