// Classifies a sequence with an exported classifier, without Python.
//
//   classifier MODELS/NAME/VERSION CHANNELS < NUMBERS
//
// The numbers are the steps of a sequence, one after the other, CHANNELS numbers each. The answer is a
// line for each class: its number and its probability, with a tab between them. `build.sh` compiles
// it.

#include <stdio.h>
#include <stdlib.h>

#include "saved_model.h"

enum { MAX_NUMBERS = 1 << 20 };

int main(int count, const char* const* arguments) {
  static float values[MAX_NUMBERS];
  if (count != 3) fail("usage: %s MODELS/NAME/VERSION CHANNELS < NUMBERS", arguments[0]);
  const int channels = atoi(arguments[2]);
  if (channels < 1) fail("CHANNELS must be at least 1. Received: %s", arguments[2]);
  int size = 0;
  while (size < MAX_NUMBERS && scanf("%f", values + size) == 1) ++size;
  if (!feof(stdin)) fail("there may be %d numbers, and nothing else", MAX_NUMBERS - 1);
  const int32_t steps = size / channels;
  Model model = load_model(arguments[1]);
  Tensors request = {0};
  put(&request, "sequences", numbers(TF_FLOAT, values, 3, (int64_t[]){1, steps, channels}));
  put(&request, "lengths", numbers(TF_INT32, &steps, 1, (int64_t[]){1}));
  Tensors answer = call(&model, "serving_default", &request);
  TF_Tensor* probabilities = get(&answer, "probabilities");
  for (int i = 0; i < TF_Dim(probabilities, 1); ++i)
    printf("%d\t%.9g\n", i, ((const float*)TF_TensorData(probabilities))[i]);
  clear(&request);
  clear(&answer);
  delete_model(&model);
  return 0;
}
