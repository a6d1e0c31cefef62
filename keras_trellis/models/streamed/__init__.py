"""Whole models, streamed.

`calls` lists the layers that a model calls. `rules` has the rule by which each of them streams:
those of `stepwise`, `windows`, `recurrent` and `pooled`, each a `rule.Rule`. `plan` puts them
together and runs them. `model` has the public class; `received` checks what it is given, `costs`
counts, `formats` exports.
"""
