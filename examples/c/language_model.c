// Scores texts with an exported language model and continues them, without Python.
//
//   language_model MODELS/NAME/VERSION LENGTH TEXT...
//
// The texts are one batch. Each answer is a line: the number of the text, a name, the value, with
// tabs between them. The version's assets.extra/model_card.md lists the signatures and their
// tensors. `build.sh` compiles this program.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "saved_model.h"

enum { MAX_ROWS = 256 };

// Returns where a row of a tensor [rows, columns] begins; an element has `size` bytes.
static const void* row_of(TF_Tensor* tensor, int row, size_t size) {
  const size_t columns = TF_NumDims(tensor) > 1 ? (size_t)TF_Dim(tensor, 1) : 1;
  return (const char*)TF_TensorData(tensor) + (size_t)row * columns * size;
}

static const float* floats_of(const Tensors* tensors, const char* name, int row) {
  return row_of(get(tensors, name), row, sizeof(float));
}

static const int32_t* ints_of(const Tensors* tensors, const char* name, int row) {
  return row_of(get(tensors, name), row, sizeof(int32_t));
}

static const TF_TString* strings_of(const Tensors* tensors, const char* name, int row) {
  return row_of(get(tensors, name), row, sizeof(TF_TString));
}

static void print_string(const TF_TString* text) {
  const char* data = TF_StringGetDataPointer(text);
  for (size_t i = 0; i < TF_StringGetSize(text); ++i) {
    if (data[i] == '\n')
      fputs("\\n", stdout);  // an answer is one line
    else
      fputc(data[i], stdout);
  }
}

// `serving_default`: the perplexity, and the most probable next tokens.
static void describe(const Model* model, const Tensors* texts, int rows) {
  Tensors answer = call(model, "serving_default", texts);
  const int best = (int)TF_Dim(get(&answer, "next_tokens"), 1);
  for (int row = 0; row < rows; ++row) {
    printf("%d\tperplexity\t%.9g\n", row, *floats_of(&answer, "perplexity", row));
    for (int i = 0; i < best; ++i) {
      printf("%d\tnext\t", row);
      print_string(strings_of(&answer, "next_tokens", row) + i);
      printf("\t%.9g\n", floats_of(&answer, "next_probabilities", row)[i]);
    }
  }
  clear(&answer);
}

// `score_v2` and `score_ids_v2`: the negative log-likelihood of texts, token by token, and of ids.
static void score(const Model* model, const Tensors* texts, const Tensors* ids, int rows) {
  Tensors answer = call(model, "score_v2", texts), again = call(model, "score_ids_v2", ids);
  for (int row = 0; row < rows; ++row) {
    printf("%d\ttotal\t%.9g\n", row, *floats_of(&answer, "total", row));
    printf("%d\ttotal of ids\t%.9g\n", row, *floats_of(&again, "total", row));
    for (int i = 0; i < *ints_of(&answer, "count", row); ++i)
      printf("%d\tnll\t%.9g\n", row, floats_of(&answer, "nll", row)[i]);
  }
  clear(&answer);
  clear(&again);
}

static int32_t most_probable(const float* log_probs, int64_t size) {
  int32_t best = 0;
  for (int32_t id = 1; id < size; ++id)
    if (log_probs[id] > log_probs[best]) best = id;
  return best;
}

// `prefill_v2` and `step_v2`: reads the prompt in one call, then one token at a time, the most probable.
static void go_on_by_steps(const Model* model, const Tensors* prompt, int rows, int length) {
  Tensors state = call(model, "prefill_v2", prompt);  // log_probs, and the cache
  for (int i = 0; i < length; ++i) {
    int32_t ids[MAX_ROWS];
    for (int row = 0; row < rows; ++row) {
      const float* log_probs = floats_of(&state, "log_probs", row);
      ids[row] = most_probable(log_probs, TF_Dim(get(&state, "log_probs"), 1));
      printf("%d\tstep\t%d\t%.9g\n", row, ids[row], log_probs[ids[row]]);
    }
    put(&state, "ids", numbers(TF_INT32, ids, 1, (int64_t[]){rows}));
    Tensors next = call(model, "step_v2", &state);
    clear(&state);
    state = next;
  }
  clear(&state);
}

// Returns the cache of no text: what `prefill_v2` returns of empty prompts.
static Tensors no_text(const Model* model, int rows) {
  const int32_t lengths[MAX_ROWS] = {0};
  Tensors prompt = {0};
  put(&prompt, "ids", numbers(TF_INT32, lengths, 2, (int64_t[]){rows, 0}));
  put(&prompt, "lengths", numbers(TF_INT32, lengths, 1, (int64_t[]){rows}));
  Tensors answer = call(model, "prefill_v2", &prompt);
  clear(&prompt);
  return answer;
}

static void put_settings(Tensors* request, int rows, int length) {
  int32_t zeros[MAX_ROWS] = {0}, lengths[MAX_ROWS], none[MAX_ROWS];
  int64_t seeds[MAX_ROWS];
  float ones[MAX_ROWS];
  for (int row = 0; row < rows; ++row) {
    lengths[row] = length, none[row] = -1, seeds[row] = row, ones[row] = 1;
  }
  const int64_t dims[] = {rows};
  put(request, "temperature", numbers(TF_FLOAT, ones, 1, dims));
  put(request, "top_k", numbers(TF_INT32, zeros, 1, dims));  // 0: all tokens
  put(request, "top_p", numbers(TF_FLOAT, ones, 1, dims));
  put(request, "seed", numbers(TF_INT64, seeds, 1, dims));
  put(request, "max_length", numbers(TF_INT32, lengths, 1, dims));
  put(request, "alternatives", numbers(TF_INT32, zeros, 1, dims));
  const int64_t one_each[] = {rows, 1}, no_columns[] = {rows, 0};
  put(request, "stop_ids", numbers(TF_INT32, none, 2, no_columns));
  put(request, "stop", strings(NULL, 2, no_columns));
  put(request, "forbidden_ids", numbers(TF_INT32, none, 2, one_each));  // -1: no <unk>
}

// Calls `generate_v2` on what has not been read yet; `state`, a cache, becomes the one after it.
static void generate_once(const Model* model, Tensors* state, int rows, int length) {
  put_settings(state, rows, length);
  Tensors answer = call(model, "generate_v2", state);
  clear(state);
  *state = answer;
  for (int row = 0; row < rows; ++row) {
    printf("%d\tgenerated\t", row);
    print_string(strings_of(&answer, "text", row));
    printf("\n");
  }
}

// `generate_v2`: by chance, each row with a seed of its own, and then as many tokens again.
static void generate(const Model* model, const Tensors* prompt, int rows, int length) {
  Tensors state = no_text(model, rows);
  TF_Tensor *ids = get(prompt, "ids"), *lengths = get(prompt, "lengths");
  const int64_t dims[] = {rows, TF_Dim(ids, 1)};
  put(&state, "ids", numbers(TF_INT32, TF_TensorData(ids), 2, dims));
  put(&state, "lengths", numbers(TF_INT32, TF_TensorData(lengths), 1, dims));
  generate_once(model, &state, rows, length);
  // The last token of each row is what the cache has not seen yet.
  int32_t last[MAX_ROWS], one[MAX_ROWS];
  for (int row = 0; row < rows; ++row) {
    last[row] = ints_of(&state, "ids", row)[length - 1], one[row] = 1;
  }
  put(&state, "ids", numbers(TF_INT32, last, 2, (int64_t[]){rows, 1}));
  put(&state, "lengths", numbers(TF_INT32, one, 1, dims));
  generate_once(model, &state, rows, length);
  clear(&state);
}

// Returns ids and lengths of the texts, each after a line break, which is what begins a text.
static Tensors tokenize(const Model* model, const char* const* texts, int rows) {
  char* lines[MAX_ROWS];
  for (int row = 0; row < rows; ++row) {
    const size_t size = strlen(texts[row]) + 2;
    lines[row] = malloc(size);
    if (!lines[row]) fail("out of memory");
    snprintf(lines[row], size, "\n%s", texts[row]);
  }
  Tensors request = {0};
  put(&request, "text", strings((const char* const*)lines, 1, (int64_t[]){rows}));
  Tensors answer = call(model, "tokenize", &request);
  clear(&request);
  for (int row = 0; row < rows; ++row) free(lines[row]);
  return answer;
}

int main(int count, const char* const* arguments) {
  if (count < 4) fail("usage: %s MODELS/NAME/VERSION LENGTH TEXT...", arguments[0]);
  const int length = atoi(arguments[2]), rows = count - 3;
  const char* const* texts = arguments + 3;
  if (length < 1) fail("LENGTH must be a number of at least 1. Received: %s", arguments[2]);
  if (rows > MAX_ROWS) fail("there may be %d texts. Received: %d", MAX_ROWS, rows);
  Model model = load_model(arguments[1]);
  Tensors request = {0};
  put(&request, "text", strings(texts, 1, (int64_t[]){rows}));
  Tensors prompt = tokenize(&model, texts, rows);
  const int32_t none[MAX_ROWS] = {0};  // no tokens besides those that are scored
  put(&request, "alternatives", numbers(TF_INT32, none, 1, (int64_t[]){rows}));
  put(&prompt, "alternatives", numbers(TF_INT32, none, 1, (int64_t[]){rows}));
  describe(&model, &request, rows);
  score(&model, &request, &prompt, rows);
  go_on_by_steps(&model, &prompt, rows, length);
  generate(&model, &prompt, rows, length);
  clear(&request);
  clear(&prompt);
  delete_model(&model);
  return 0;
}
