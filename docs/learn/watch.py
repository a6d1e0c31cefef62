# %% [markdown]
# # Recognise exercises from a smartwatch, and stream them
# Ten people did seven exercises with a smartwatch, 50 samples a second. Two networks learn from six
# of them to tell the exercises apart. One then reads a recording sample by sample, here and in
# LiteRT, the runtime of phones. Run it in a clone: `python -m docs.learn.watch`.

# %%
import os
import tempfile
import time

import keras
import numpy as np
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter
from keras import layers
from matplotlib import pyplot

from keras_trellis import StreamedModel, TrellisLayer
from trainers.tasks import config, registry

tf.config.threading.set_intra_op_parallelism_threads(1)
keras.utils.set_random_seed(0)
budget = float(os.environ.get("SECONDS", 12))  # of the processor, for each training
data = registry.get("watch").load(config.load("watch", "small"), None)
print(*data.notes, data.summary, sep="\n")
batches = tf.data.Dataset.from_tensor_slices(tuple(data.train))
batches = batches.shuffle(data.count).batch(32, drop_remainder=True)

# %% [markdown]
# Both networks have about the same number of parameters and the same CPU time. XLA compiles the
# one that it makes faster. No choice is made on the validation people: they are new people, too.


# %%
def classifier(layer):
    scaling = dict(mean=data.facts.mean, variance=np.square(data.facts.deviation))
    first = [keras.Input((None, 6), name="x"), layers.Normalization(**scaling)]
    return keras.Sequential([*first, layer, layers.Dense(7, activation="softmax")])


def train(model, jit_compile):
    model.compile("adam", "sparse_categorical_crossentropy", jit_compile=jit_compile)
    model.fit(batches.take(1), verbose=0, shuffle=False)  # compiles
    began = time.process_time()

    def follow_cosine(batch, logs):
        share = min(1, (time.process_time() - began) / budget)
        model.optimizer.learning_rate = 2e-3 * (1 + np.cos(np.pi * share))
        model.stop_training = share == 1

    follow = keras.callbacks.LambdaCallback(on_train_batch_begin=follow_cosine)
    model.fit(batches, epochs=10**6, verbose=0, shuffle=False, callbacks=[follow])
    name, steps = model.layers[1].name, int(model.optimizer.iterations)
    print(f"{name}: {model.count_params():,} parameters, {steps:,} training steps")
    for split in ("validation", "test"):
        windows, classes = getattr(data, split)
        right = np.argmax(model(windows), axis=-1) == classes
        print(f"  {np.mean(right):.1%} of {len(right)} windows of the {split} people")


trellis = TrellisLayer(44, depth=3, kernel_size=8, dilation_rate=(1, 8, 64))
train(model := classifier(trellis), jit_compile=True)
train(classifier(layers.GRU(149)), jit_compile=False)

# %% [markdown]
# After each sample the streamed model returns what one pass over all samples so far returns.

# %%
recording = data.recordings["test"][2]
streamed = StreamedModel(model)
step, cache, answers = tf.function(streamed.stream), streamed.get_initial_cache(1), []
for sample in recording.values:
    answer, cache = step(sample[None, None], cache)
    answers.append(answer[0])
for count in (1, 300, len(answers)):
    so_far = model(recording.values[None, :count])[0]
    np.testing.assert_allclose(answers[count - 1], so_far, atol=1e-4)
figure, (upper, lower) = pyplot.subplots(2, sharex=True, layout="constrained")
seconds = np.arange(len(answers)) / 50
upper.plot(seconds, recording.values[:, :3], label=data.facts.channels[:3])
lower.stackplot(seconds, np.transpose(answers), labels=data.classes)
upper.set(title=recording.name, ylabel="acceleration")
lower.set(xlabel="seconds", ylabel="probability")
figure.legend(loc="outside right center")
folder = tempfile.mkdtemp()
figure.savefig(f"{folder}/watch.png")

# %% [markdown]
# Each call takes the cache and returns the next. The LSTM is not trained: time needs no weights.


# %%
def run_on_device(streamed, name):
    streamed.export(path := f"{folder}/{name}.tflite", format="litert")
    step, answers = Interpreter(path, num_threads=1).get_signature_runner(), []
    cache = {name: np.array(c) for name, c in streamed.get_initial_cache(1).items()}
    size, began = sum(c.nbytes for c in cache.values()), time.process_time()
    for sample in recording.values:
        cache = step(x=sample[None, None], **cache)
        answers.append(cache.pop("outputs")[0])
    cost = 1e6 * (time.process_time() - began) / len(answers)
    print(f"{path}: {size:,} bytes of cache, {cost:.0f} microseconds a sample")
    return answers


np.testing.assert_allclose(run_on_device(streamed, "trellis"), answers, atol=1e-4)
run_on_device(StreamedModel(classifier(layers.LSTM(129))), "lstm")
