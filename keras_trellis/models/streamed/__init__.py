"""Whole models, streamed.

`calls` lists the layers that a model calls, `plan` finds for each call the rule by which it
streams (`rules`, `windows`, `recurrent`, `pooled`), and `model` has the public class.
"""
