"""A server of exported language models, over the runtime without TensorFlow."""
