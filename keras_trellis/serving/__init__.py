"""Exports at work, by ONNX Runtime and NumPy alone: neither Keras nor TensorFlow is imported."""
