"""Tests that pytest runs."""

load("@rules_python//python:py_test.bzl", "py_test")

def pytest_test(name, srcs, deps = [], **kwargs):
    """A test whose one source file is run by pytest.

    Args:
      name: name of the target.
      srcs: the test file.
      deps: what it imports.
      **kwargs: passed to `py_test`.
    """
    py_test(
        name = name,
        srcs = srcs + ["//tools:run_pytest.py"],
        main = "//tools:run_pytest.py",
        args = ["$(location %s)" % src for src in srcs],
        data = ["//:pyproject.toml"],
        deps = deps + ["//tests:conftest", "@pypi//pytest"],
        **kwargs
    )
