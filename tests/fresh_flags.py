"""The flags of one command, in a process that has imported several."""

import contextlib

from absl import flags
from absl.testing import flagsaver


@contextlib.contextmanager
def fresh_flags(module):
    """Leaves the flags that a process of one command has, each with its default, and restores all.

    The flags of all commands are in one list, which this process has from importing them.
    """
    values = flags.FLAGS
    saved = flagsaver.save_flag_values()
    kept = {flag.name for flag in values.get_key_flags_for_module(module.__name__)}
    keys = {
        name: list(each) for name, each in values.key_flags_by_module_dict().items()
    }
    removed = {
        name: (values[name], values.find_module_defining_flag(name))
        for name in values
        if values.find_module_defining_flag(name).startswith("trainers.")
        and name not in kept
    }
    for name in removed:
        delattr(values, name)
    others = {*values}
    try:
        if hasattr(module, "define_flags"):
            module.define_flags()
        yield
    finally:
        for name in {*values} - others:
            delattr(values, name)
        flagsaver.restore_flag_values(saved)
        for name, (flag, defining) in removed.items():
            values[name] = flag
            values.register_flag_by_module(defining, flag)
        for name, each in keys.items():
            for flag in each:
                if flag not in values.get_key_flags_for_module(name):
                    values.register_key_flag_for_module(name, flag)
