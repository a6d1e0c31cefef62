"""The same on every backend: programs that a test runs on another one."""
