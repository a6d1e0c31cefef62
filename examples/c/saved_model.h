// Loads a SavedModel as TensorFlow Serving does, and asks its signatures: with the C API alone.

#ifndef SAVED_MODEL_H_
#define SAVED_MODEL_H_

#include <stdint.h>

#include "tensorflow/c/c_api.h"

typedef struct {
  TF_Graph* graph;
  TF_Session* session;
  TF_Buffer* meta_graph;  // a MetaGraphDef: says which tensors of the graph a signature stands for
} Model;

// Tensors by name: what a signature takes, or what it returns.
enum { MAX_TENSORS = 64, MAX_NAME = 64 };
typedef struct {
  int count;
  char names[MAX_TENSORS][MAX_NAME];
  TF_Tensor* values[MAX_TENSORS];
} Tensors;

// Ends the program with a line on stderr.
_Noreturn void fail(const char* format, ...);

// Loads the version of a model in `folder`.
Model load_model(const char* folder);
void delete_model(Model* model);

// Calls a signature. It finds its inputs in `given` by their names; what else is there is not read.
Tensors call(const Model* model, const char* signature, const Tensors* given);

// Puts a tensor under a name, and deletes what was there. The tensors belong to the `Tensors`.
void put(Tensors* tensors, const char* name, TF_Tensor* value);
// Returns the tensor of that name.
TF_Tensor* get(const Tensors* tensors, const char* name);
// Deletes the tensors, of which there are none then.
void clear(Tensors* tensors);

// A tensor of numbers, copied from `values` in C's order.
TF_Tensor* numbers(TF_DataType dtype, const void* values, int rank, const int64_t* dims);
// A tensor of strings, in the same order.
TF_Tensor* strings(const char* const* values, int rank, const int64_t* dims);

#endif
