/* Streams a recording: `main recording.csv` prints the outputs of each chunk, and
   `main recording.csv expected.csv` compares them with those of Keras. A line of the recording is a
   time step, a line of the outputs is a chunk. */
#include <math.h>
#include <stdio.h>

#include "model.h"

static MODEL_stream stream;

/* Reads so many numbers; returns how many there were. */
static int read_numbers(FILE *file, float *numbers, int count) {
  for (int i = 0; i < count; i++) {
    if (fscanf(file, " %f", numbers + i) != 1) return i;
    if (fscanf(file, " ,") == EOF && i + 1 < count) return i + 1;
  }
  return count;
}

int main(int count, char **names) {
  static float inputs[MODEL_INPUTS], outputs[MODEL_OUTPUTS], expected[MODEL_OUTPUTS];
  FILE *recording = count > 1 ? fopen(names[1], "r") : stdin;
  FILE *keras = count > 2 ? fopen(names[2], "r") : NULL;
  if (!recording || (count > 2 && !keras)) {
    fprintf(stderr, "usage: %s [recording.csv [expected.csv]]\n", names[0]);
    return 2;
  }
  float largest = 0;
  int chunks = 0;
  MODEL_begin(&stream);
  while (read_numbers(recording, inputs, MODEL_INPUTS) == MODEL_INPUTS) {
    MODEL_advance(&stream, inputs, outputs);
    chunks++;
    if (keras && read_numbers(keras, expected, MODEL_OUTPUTS) != MODEL_OUTPUTS) {
      fprintf(stderr, "%s ends before chunk %d\n", names[2], chunks);
      return 2;
    }
    for (int i = 0; i < MODEL_OUTPUTS; i++) {
      if (!keras) {
        printf("%.7g%s", outputs[i], i + 1 < MODEL_OUTPUTS ? "," : "\n");
        continue;
      }
      const float difference = fabsf(outputs[i] - expected[i]);
      /* Written so that NaN counts as the largest. */
      if (!(difference <= largest)) largest = difference;
    }
  }
  if (!keras) return 0;
  printf("%d chunks, largest difference from Keras %.2g\n", chunks, largest);
  return chunks && largest <= 1e-4f ? 0 : 1;
}
