#include "saved_model.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void fail(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vfprintf(stderr, format, arguments);
  va_end(arguments);
  fputc('\n', stderr);
  exit(1);
}

static void check(TF_Status* status, const char* what) {
  if (TF_GetCode(status) != TF_OK) fail("%s: %s", what, TF_Message(status));
  TF_DeleteStatus(status);
}

Model load_model(const char* folder) {
  const char* tags[] = {"serve"};
  Model model = {.graph = TF_NewGraph(), .meta_graph = TF_NewBuffer()};
  TF_SessionOptions* options = TF_NewSessionOptions();
  TF_Status* status = TF_NewStatus();
  model.session = TF_LoadSessionFromSavedModel(options, NULL, folder, tags, 1, model.graph,
                                               model.meta_graph, status);
  TF_DeleteSessionOptions(options);
  check(status, folder);
  return model;
}

void delete_model(Model* model) {
  TF_Status* status = TF_NewStatus();
  TF_DeleteSession(model->session, status);
  check(status, "closing the session");
  TF_DeleteGraph(model->graph);
  TF_DeleteBuffer(model->meta_graph);
}

// Protocol buffers, as far as a signature needs them: a message is fields, each of which begins
// with its number and wire type (https://protobuf.dev/programming-guides/encoding). The numbers are
// those of tensorflow/core/protobuf/meta_graph.proto.
enum { SIGNATURES = 5, INPUTS = 1, OUTPUTS = 2, TENSOR_NAME = 1, MAP_KEY = 1, MAP_VALUE = 2 };

typedef struct {
  const uint8_t* at;
  const uint8_t* end;
} Bytes;

static uint64_t take_varint(Bytes* bytes) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64 && bytes->at < bytes->end; shift += 7) {
    const uint8_t byte = *bytes->at++;
    value |= (uint64_t)(byte & 127) << shift;
    if (byte < 128) return value;
  }
  fail("the MetaGraphDef ends within a number");
}

static Bytes take(Bytes* bytes, uint64_t size) {
  if (size > (uint64_t)(bytes->end - bytes->at)) fail("the MetaGraphDef ends within a field");
  const Bytes taken = {bytes->at, bytes->at + size};
  bytes->at = taken.end;
  return taken;
}

// Takes a field from a message: returns its number, or 0 at the message's end. `value` gets the
// bytes of a string or message.
static uint64_t take_field(Bytes* message, Bytes* value) {
  if (message->at == message->end) return 0;
  const uint64_t key = take_varint(message);
  switch (key & 7) {
    case 0: take_varint(message); break;
    case 1: take(message, 8); break;
    case 2: *value = take(message, take_varint(message)); break;
    case 5: take(message, 4); break;
    default: fail("the MetaGraphDef has a field of unknown type");
  }
  return key >> 3;
}

// Returns the last of the fields of that number.
static Bytes field(Bytes message, uint64_t number) {
  Bytes found = {NULL, NULL}, value = found;
  for (uint64_t each; (each = take_field(&message, &value));)
    if (each == number) found = value;
  return found;
}

static int equals(Bytes bytes, const char* text) {
  const size_t size = strlen(text);
  return (size_t)(bytes.end - bytes.at) == size && memcmp(bytes.at, text, size) == 0;
}

static Bytes find_signature(const Model* model, const char* name) {
  const uint8_t* data = model->meta_graph->data;
  Bytes rest = {data, data + model->meta_graph->length}, entry = rest;
  for (uint64_t number; (number = take_field(&rest, &entry));)
    if (number == SIGNATURES && equals(field(entry, MAP_KEY), name)) return field(entry, MAP_VALUE);
  fail("the model has no signature %s", name);
}

// Returns the place in the graph of a tensor called "operation:index".
static TF_Output place(const Model* model, Bytes name) {
  char text[256];
  snprintf(text, sizeof text, "%.*s", (int)(name.end - name.at), (const char*)name.at);
  char* colon = strrchr(text, ':');
  if (!colon) fail("%s is no name of a tensor", text);
  *colon = 0;
  const TF_Output output = {TF_GraphOperationByName(model->graph, text), atoi(colon + 1)};
  if (!output.oper) fail("the graph has no operation %s", text);
  return output;
}

// Reads a signature's inputs, or its outputs: their names, and their places in the graph.
static int read_map(const Model* model, Bytes signature, uint64_t map, char names[][MAX_NAME],
                    TF_Output* places) {
  int count = 0;
  Bytes entry = {NULL, NULL};
  for (uint64_t number; (number = take_field(&signature, &entry));) {
    if (number != map) continue;
    if (count == MAX_TENSORS) fail("a signature has more than %d tensors", MAX_TENSORS);
    const Bytes key = field(entry, MAP_KEY);
    snprintf(names[count], MAX_NAME, "%.*s", (int)(key.end - key.at), (const char*)key.at);
    places[count++] = place(model, field(field(entry, MAP_VALUE), TENSOR_NAME));
  }
  return count;
}

Tensors call(const Model* model, const char* signature, const Tensors* given) {
  Tensors results = {0};
  char names[MAX_TENSORS][MAX_NAME];
  TF_Output inputs[MAX_TENSORS], outputs[MAX_TENSORS];
  TF_Tensor* values[MAX_TENSORS];
  const Bytes found = find_signature(model, signature);
  const int count = read_map(model, found, INPUTS, names, inputs);
  for (int i = 0; i < count; ++i) values[i] = get(given, names[i]);
  results.count = read_map(model, found, OUTPUTS, results.names, outputs);
  TF_Status* status = TF_NewStatus();
  TF_SessionRun(model->session, NULL, inputs, values, count, outputs, results.values,
                results.count, NULL, 0, NULL, status);
  check(status, signature);
  return results;
}

static int find(const Tensors* tensors, const char* name) {
  for (int i = 0; i < tensors->count; ++i)
    if (strcmp(tensors->names[i], name) == 0) return i;
  return -1;
}

void put(Tensors* tensors, const char* name, TF_Tensor* value) {
  int index = find(tensors, name);
  if (index < 0) {
    if (tensors->count == MAX_TENSORS) fail("more than %d tensors", MAX_TENSORS);
    index = tensors->count++;
    snprintf(tensors->names[index], MAX_NAME, "%s", name);
  } else {
    TF_DeleteTensor(tensors->values[index]);
  }
  tensors->values[index] = value;
}

TF_Tensor* get(const Tensors* tensors, const char* name) {
  const int index = find(tensors, name);
  if (index < 0) fail("there is no tensor %s", name);
  return tensors->values[index];
}

void clear(Tensors* tensors) {
  for (int i = 0; i < tensors->count; ++i) TF_DeleteTensor(tensors->values[i]);
  tensors->count = 0;
}

TF_Tensor* numbers(TF_DataType dtype, const void* values, int rank, const int64_t* dims) {
  size_t size = TF_DataTypeSize(dtype);
  for (int i = 0; i < rank; ++i) size *= (size_t)dims[i];
  TF_Tensor* tensor = TF_AllocateTensor(dtype, dims, rank, size);
  if (size) memcpy(TF_TensorData(tensor), values, size);
  return tensor;
}

static void delete_strings(void* data, size_t size, void* unused) {
  (void)unused;
  TF_TString* each = data;
  for (size_t i = 0; i < size / sizeof *each; ++i) TF_StringDealloc(each + i);
  free(data);
}

TF_Tensor* strings(const char* const* values, int rank, const int64_t* dims) {
  int64_t count = 1;
  for (int i = 0; i < rank; ++i) count *= dims[i];
  const size_t size = (size_t)count * sizeof(TF_TString);
  TF_TString* data = malloc(size ? size : 1);
  if (!data) fail("out of memory");
  for (int64_t i = 0; i < count; ++i) {
    TF_StringInit(data + i);
    TF_StringCopy(data + i, values[i], strlen(values[i]));
  }
  return TF_NewTensor(TF_STRING, dims, rank, data, size, delete_strings, NULL);
}
