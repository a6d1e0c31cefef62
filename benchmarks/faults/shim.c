// Stands between a program and the C library, by LD_PRELOAD, and lets file operations go wrong.
//
// Only operations on what lies under one folder count, by path or by a descriptor that was opened
// there. A process sets, through `faults_arm`, which of them goes wrong and how; `faults_log` gives
// it a line for each. `faults_event` counts the calls of Python functions and sends a signal at one.
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { NOTHING, BEFORE, AFTER, ONCE, LASTING, MATCHING, SHORT, FITS };  // as in shim.py

enum { DESCRIPTORS = 4096, TAKES_SPACE = 1 };

static struct {
  char prefix[PATH_MAX];
  char operation[32];
  char path[PATH_MAX];  // patterns, both, of fnmatch(3)
  int at;               // which of the operations that match, counted from 1
  int action;
  int value;  // a signal or an errno
  long fits;  // bytes that a file may have, of FITS
} plan;

static int matched, begun, log_to = -1;
static char *opened[DESCRIPTORS];       // paths below the prefix
static long long written[DESCRIPTORS];  // bytes, since it was opened
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static long long events, event_at;
static int event_signal;

void faults_arm(const char *prefix, const char *operation, const char *path, int at, int action,
                int value, long fits) {
  snprintf(plan.prefix, sizeof plan.prefix, "%s", prefix);
  snprintf(plan.operation, sizeof plan.operation, "%s", operation);
  snprintf(plan.path, sizeof plan.path, "%s", path);
  plan.at = at, plan.action = action, plan.value = value, plan.fits = fits;
  matched = begun = 0;
}

void faults_log(int descriptor) { log_to = descriptor; }

int faults_begun(void) { return begun; }

void faults_events(long long at, int number) { events = 0, event_at = at, event_signal = number; }

long long faults_counted(void) { return events; }

// A Py_tracefunc: what each call of a Python function does, once PyEval_SetProfile is given it.
int faults_event(void *object, void *frame, int what, void *argument) {
  (void)object, (void)frame, (void)what, (void)argument;
  if (++events == event_at) kill(getpid(), event_signal);
  return 0;
}

// The path below the prefix, in `buffer`, or NULL where it lies elsewhere.
static const char *below(int folder, const char *path, char *buffer) {
  if (!plan.prefix[0] || !path) return NULL;
  size_t length = strlen(plan.prefix);
  if (path[0] == '/') {
    if (strncmp(path, plan.prefix, length) || path[length] != '/') return NULL;
    snprintf(buffer, PATH_MAX, "%s", path + length + 1);
    return buffer;
  }
  if (folder < 0 || folder >= DESCRIPTORS || !opened[folder]) return NULL;
  snprintf(buffer, PATH_MAX, "%s/%s", opened[folder], path);
  return buffer;
}

static const char *open_below(int descriptor) {
  return descriptor < 0 || descriptor >= DESCRIPTORS ? NULL : opened[descriptor];
}

static void track(int descriptor, const char *path) {
  if (descriptor < 0 || descriptor >= DESCRIPTORS) return;
  pthread_mutex_lock(&mutex);
  free(opened[descriptor]);
  opened[descriptor] = path ? strdup(path) : NULL;
  written[descriptor] = 0;
  pthread_mutex_unlock(&mutex);
}

static void note(const char *operation, const char *path, int flags) {
  char line[PATH_MAX + 64];
  int length = snprintf(line, sizeof line, "%s\t%s\t%d\n", operation, path, flags);
  if (log_to >= 0) syscall(SYS_write, log_to, line, length);
}

typedef struct {
  int error;     // to return, or 0
  int kill;      // whether to send the signal once the operation is done
  int shortened; // whether to write a half
} Verdict;

// Says what becomes of an operation. `size` is what it writes to `descriptor`, or 0.
static Verdict judge(const char *operation, const char *path, int flags, int descriptor,
                     size_t size) {
  Verdict verdict = {0, 0, 0};
  if (!path) return verdict;
  pthread_mutex_lock(&mutex);
  note(operation, path, flags);
  int here = plan.action && !fnmatch(plan.operation, operation, FNM_EXTMATCH) && !fnmatch(plan.path, path, 0);
  int now = here && ++matched == plan.at;
  int full = plan.value == ENOSPC || plan.value == EDQUOT || plan.value == EFBIG;
  begun |= now;
  switch (plan.action) {
    case BEFORE:
      if (now) kill(getpid(), plan.value);
      break;
    case AFTER:
      verdict.kill = now;
      break;
    case ONCE:
      if (now) verdict.error = plan.value;
      break;
    case LASTING:
      if (begun && (!full || flags & TAKES_SPACE)) verdict.error = plan.value;
      break;
    case MATCHING:
      if (here) begun = 1, verdict.error = plan.value;
      break;
    case SHORT:
      verdict.shortened = now && size > 1;
      break;
    case FITS:
      if (begun && size && written[descriptor] + (long long)size > plan.fits)
        verdict.error = plan.value;
      break;
  }
  if (size && !verdict.error) written[descriptor] += size;
  pthread_mutex_unlock(&mutex);
  return verdict;
}

static void end(Verdict verdict) {
  int error = errno;
  if (verdict.kill) kill(getpid(), plan.value);
  errno = error;
}

#define REAL(name) \
  static __typeof__(&name) real; \
  if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

// An operation on a path or a descriptor: the verdict, the call, what follows.
#define GUARDED(type, name, path, flags, descriptor, size, call) \
  Verdict verdict = judge(name, path, flags, descriptor, size); \
  if (verdict.error) { \
    errno = verdict.error; \
    return -1; \
  } \
  type result = call; \
  end(verdict); \
  return result

// --- opening

static int created(int flags) { return flags & O_CREAT ? TAKES_SPACE : 0; }

static int opening(int flags, const char *path, Verdict *verdict) {
  int writes = (flags & O_ACCMODE) != O_RDONLY || flags & O_CREAT;
  *verdict = judge(writes ? "openwrite" : "open", path, created(flags), -1, 0);
  if (verdict->error) errno = verdict->error;
  return verdict->error;
}

#define OPEN(name, arguments, values, folder) \
  int name arguments { \
    REAL(name); \
    char buffer[PATH_MAX]; \
    mode_t mode = 0; \
    if (flags & (O_CREAT | O_TMPFILE)) { \
      va_list rest; \
      va_start(rest, flags); \
      mode = va_arg(rest, mode_t); \
      va_end(rest); \
    } \
    const char *found = below(folder, path, buffer); \
    Verdict verdict; \
    if (opening(flags, found, &verdict)) return -1; \
    int descriptor = real values; \
    if (descriptor >= 0) track(descriptor, found); \
    end(verdict); \
    return descriptor; \
  }

OPEN(open, (const char *path, int flags, ...), (path, flags, mode), AT_FDCWD)
OPEN(open64, (const char *path, int flags, ...), (path, flags, mode), AT_FDCWD)
OPEN(openat, (int folder, const char *path, int flags, ...), (folder, path, flags, mode), folder)
OPEN(openat64, (int folder, const char *path, int flags, ...), (folder, path, flags, mode), folder)

int creat(const char *path, mode_t mode) { return open(path, O_CREAT | O_WRONLY | O_TRUNC, mode); }

static FILE *open_stream(FILE *(*real)(const char *, const char *), const char *path,
                         const char *mode) {
  char buffer[PATH_MAX];
  const char *found = below(AT_FDCWD, path, buffer);
  int reads = mode[0] == 'r' && !strchr(mode, '+');
  Verdict verdict;
  if (opening(reads ? O_RDONLY : O_WRONLY | O_CREAT, found, &verdict)) return NULL;
  FILE *file = real(path, mode);
  if (file) track(fileno(file), found);
  end(verdict);
  return file;
}

FILE *fopen(const char *path, const char *mode) {
  REAL(fopen);
  return open_stream(real, path, mode);
}

FILE *fopen64(const char *path, const char *mode) {
  REAL(fopen64);
  return open_stream(real, path, mode);
}

DIR *opendir(const char *path) {
  REAL(opendir);
  char buffer[PATH_MAX];
  Verdict verdict = judge("list", below(AT_FDCWD, path, buffer), 0, -1, 0);
  if (verdict.error) {
    errno = verdict.error;
    return NULL;
  }
  DIR *folder = real(path);
  end(verdict);
  return folder;
}

int dup(int descriptor) {
  REAL(dup);
  int copy = real(descriptor);
  if (copy >= 0) track(copy, open_below(descriptor));
  return copy;
}

int fcntl(int descriptor, int command, ...) {
  REAL(fcntl);
  va_list rest;
  va_start(rest, command);
  void *argument = va_arg(rest, void *);
  va_end(rest);
  int result = real(descriptor, command, argument);
  if (result >= 0 && (command == F_DUPFD || command == F_DUPFD_CLOEXEC))
    track(result, open_below(descriptor));
  return result;
}

int fcntl64(int descriptor, int command, ...) {
  va_list rest;
  va_start(rest, command);
  void *argument = va_arg(rest, void *);
  va_end(rest);
  return fcntl(descriptor, command, argument);
}

// A file system tells of a failure as it closes, and the descriptor is closed all the same.
int close(int descriptor) {
  REAL(close);
  const char *path = open_below(descriptor);
  if (!path) return real(descriptor);
  Verdict verdict = judge("close", path, 0, -1, 0);
  track(descriptor, NULL);
  int result = real(descriptor);
  end(verdict);
  if (verdict.error) errno = verdict.error;
  return verdict.error ? -1 : result;
}

int fclose(FILE *file) {
  REAL(fclose);
  int descriptor = fileno(file);
  if (!open_below(descriptor)) return real(file);
  Verdict verdict = judge("close", open_below(descriptor), 0, -1, 0);
  track(descriptor, NULL);
  int result = real(file);
  end(verdict);
  if (verdict.error) errno = verdict.error;
  return verdict.error ? EOF : result;
}

// --- reading and writing

#define TRANSFER(name, label, flags, arguments, descriptor, size, call) \
  ssize_t name arguments { \
    REAL(name); \
    GUARDED(ssize_t, label, open_below(descriptor), flags, descriptor, size, real call); \
  }

TRANSFER(read, "read", 0, (int fd, void *data, size_t count), fd, 0, (fd, data, count))
TRANSFER(pread, "read", 0, (int fd, void *data, size_t count, off_t at), fd, 0,
         (fd, data, count, at))
TRANSFER(pread64, "read", 0, (int fd, void *data, size_t count, off64_t at), fd, 0,
         (fd, data, count, at))
TRANSFER(write, "write", TAKES_SPACE, (int fd, const void *data, size_t count), fd, count,
         (fd, data, verdict.shortened ? count / 2 : count))
TRANSFER(pwrite, "write", TAKES_SPACE, (int fd, const void *data, size_t count, off_t at), fd,
         count, (fd, data, verdict.shortened ? count / 2 : count, at))
TRANSFER(pwrite64, "write", TAKES_SPACE, (int fd, const void *data, size_t count, off64_t at), fd,
         count, (fd, data, verdict.shortened ? count / 2 : count, at))
TRANSFER(writev, "write", TAKES_SPACE, (int fd, const struct iovec *data, int count), fd, 1,
         (fd, data, count))
TRANSFER(sendfile, "write", TAKES_SPACE, (int fd, int from, off_t *at, size_t count), fd, count,
         (fd, from, at, count))
TRANSFER(sendfile64, "write", TAKES_SPACE, (int fd, int from, off64_t *at, size_t count), fd, count,
         (fd, from, at, count))

// C streams, which TensorFlow writes: the write to the file inside of the C library cannot be met.
static size_t write_stream(size_t (*real)(const void *, size_t, size_t, FILE *), const void *data,
                           size_t size, size_t count, FILE *file) {
  int descriptor = fileno(file);
  const char *path = open_below(descriptor);
  if (!path) return real(data, size, count, file);
  Verdict verdict = judge("write", path, TAKES_SPACE, descriptor, size * count);
  if (verdict.error) {
    errno = verdict.error;
    return 0;
  }
  size_t result = real(data, size, count, file);
  end(verdict);
  return result;
}

size_t fwrite(const void *data, size_t size, size_t count, FILE *file) {
  REAL(fwrite);
  return write_stream(real, data, size, count, file);
}

int fflush(FILE *file) {
  REAL(fflush);
  const char *path = file ? open_below(fileno(file)) : NULL;
  GUARDED(int, "flush", path, TAKES_SPACE, -1, 0, real(file));
}

#define SYNC(name) \
  int name(int descriptor) { \
    REAL(name); \
    GUARDED(int, "sync", open_below(descriptor), TAKES_SPACE, -1, 0, real(descriptor)); \
  }

SYNC(fsync)
SYNC(fdatasync)

#define CUT(name, type) \
  int name(int descriptor, type size) { \
    REAL(name); \
    GUARDED(int, "cut", open_below(descriptor), 0, -1, 0, real(descriptor, size)); \
  }

CUT(ftruncate, off_t)
CUT(ftruncate64, off64_t)

int flock(int descriptor, int operation) {
  REAL(flock);
  GUARDED(int, "lock", open_below(descriptor), 0, -1, 0, real(descriptor, operation));
}

// --- names

#define ON_PATH(name, label, flags, arguments, folder, path, call) \
  int name arguments { \
    REAL(name); \
    char buffer[PATH_MAX]; \
    GUARDED(int, label, below(folder, path, buffer), flags, -1, 0, real call); \
  }

ON_PATH(rename, "rename", 0, (const char *from, const char *to), AT_FDCWD, to, (from, to))
ON_PATH(renameat, "rename", 0, (int a, const char *from, int b, const char *to), b, to,
        (a, from, b, to))
ON_PATH(renameat2, "rename", 0, (int a, const char *from, int b, const char *to, unsigned flags), b,
        to, (a, from, b, to, flags))
ON_PATH(unlink, "unlink", 0, (const char *path), AT_FDCWD, path, (path))
ON_PATH(unlinkat, "unlink", 0, (int folder, const char *path, int flags), folder, path,
        (folder, path, flags))
ON_PATH(rmdir, "unlink", 0, (const char *path), AT_FDCWD, path, (path))
ON_PATH(mkdir, "mkdir", TAKES_SPACE, (const char *path, mode_t mode), AT_FDCWD, path, (path, mode))
ON_PATH(mkdirat, "mkdir", TAKES_SPACE, (int folder, const char *path, mode_t mode), folder, path,
        (folder, path, mode))
ON_PATH(truncate, "cut", 0, (const char *path, off_t size), AT_FDCWD, path, (path, size))
ON_PATH(truncate64, "cut", 0, (const char *path, off64_t size), AT_FDCWD, path, (path, size))
ON_PATH(stat, "stat", 0, (const char *path, struct stat *found), AT_FDCWD, path, (path, found))
ON_PATH(stat64, "stat", 0, (const char *path, struct stat64 *found), AT_FDCWD, path, (path, found))
ON_PATH(lstat, "stat", 0, (const char *path, struct stat *found), AT_FDCWD, path, (path, found))
ON_PATH(lstat64, "stat", 0, (const char *path, struct stat64 *found), AT_FDCWD, path, (path, found))
ON_PATH(fstatat, "stat", 0, (int folder, const char *path, struct stat *found, int flags), folder,
        path, (folder, path, found, flags))
ON_PATH(fstatat64, "stat", 0, (int folder, const char *path, struct stat64 *found, int flags),
        folder, path, (folder, path, found, flags))
ON_PATH(access, "stat", 0, (const char *path, int mode), AT_FDCWD, path, (path, mode))

// What was built against a C library before 2.33, as TensorFlow is, asks these.
#define OLD_STAT(name, type) \
  int name(int version, const char *path, type *found); \
  ON_PATH(name, "stat", 0, (int version, const char *path, type *found), AT_FDCWD, path, \
          (version, path, found))

OLD_STAT(__xstat, struct stat)
OLD_STAT(__xstat64, struct stat64)
OLD_STAT(__lxstat, struct stat)
OLD_STAT(__lxstat64, struct stat64)
