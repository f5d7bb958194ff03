// fail.c -- a library to preload: the FAIL_AT-th call of FAIL_CALL fails with errno FAIL_ERRNO, once or (FAIL_EVER=1)
// from there on. FAIL_ERRNO=0: the process is killed instead. FAIL_HOLD=FILE: it makes FILE.held and waits before the
// call while FILE is there.
//   FAIL_CALL  malloc (realloc and aligned_alloc too), mmap (anonymous or shared), open, write, fsync, close, mkdir,
//              unlink, pthread_create; recv: a bit of 10,000 bytes or more is flipped; rename, read (pread, or a file
//              that is mapped), openr (for reading only), stat (access too), list (readdir): FAIL_PATH, if set, is a
//              part of the file's path (of a rename: the old one)
// Only what a path or descriptor above 2 is for counts. At its end the process writes how many calls there were to
// FAIL_COUNT, if set. Rank FAIL_LEAVES stops there.
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char *call, *part;
static long at, ever, code, count;

__attribute__((constructor)) static void setup(void) {
    const char *a = getenv("FAIL_AT"), *e = getenv("FAIL_EVER"), *n = getenv("FAIL_ERRNO");
    at = a ? atol(a) : 0, ever = e != 0, code = n ? atol(n) : ENOMEM;
    call = getenv("FAIL_CALL"), part = getenv("FAIL_PATH");
}
__attribute__((destructor)) static void report(void) {
    const char* path = getenv("FAIL_COUNT");
    const int fd = path ? (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, 0600) : -1;
    if (fd >= 0) { dprintf(fd, "%ld\n", count); syscall(SYS_close, fd); }
    const char *stops = getenv("FAIL_LEAVES"), *rank = getenv("RANK");
    if (stops && rank && !strcmp(stops, rank)) raise(SIGSTOP);
}

static int wait_for(const char* hold) {
    char held[4096];
    snprintf(held, sizeof held, "%s.held", hold);
    syscall(SYS_close, syscall(SYS_openat, AT_FDCWD, held, O_WRONLY | O_CREAT, 0600));
    while (access(hold, F_OK) == 0) usleep(10000);
    return 0;
}
static int fails(const char* name) {
    if (!call || strcmp(call, name)) return 0;
    const long k = __sync_add_and_fetch(&count, 1);
    if (k != at && !(ever && at && k > at)) return 0;
    const char* const hold = getenv("FAIL_HOLD");
    if (hold) return wait_for(hold);
    if (!code) kill(getpid(), SIGKILL);
    errno = (int)code;
    return 1;
}

static int fails_at(const char* name, const char* path) {
    return call && !strcmp(call, name) && (!part || strstr(path, part)) && fails(name);
}
static int fails_of(const char* name, int fd) {
    char link[32], path[4096] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    return call && !strcmp(call, name) && readlink(link, path, sizeof path - 1) > 0 && fails_at(name, path);
}

void* __libc_malloc(size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void* malloc(size_t n) { return fails("malloc") ? NULL : __libc_malloc(n); }
void* realloc(void* p, size_t n) { return fails("malloc") ? NULL : __libc_realloc(p, n); }
void* aligned_alloc(size_t a, size_t n) { return fails("malloc") ? NULL : __libc_memalign(a, n); }

#define REAL(type, name, ...) ((type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name))
void* mmap(void* p, size_t n, int prot, int flags, int fd, off_t off) {
    if (fails("mmap") || fails_of("read", fd)) return MAP_FAILED;
    return REAL(void*, mmap, void*, size_t, int, int, int, off_t)(p, n, prot, flags, fd, off);
}
int pthread_create(pthread_t* thread, const pthread_attr_t* with, void* (*start)(void*), void* argument) {
    if (fails("pthread_create")) return (int)code;
    return REAL(int, pthread_create, pthread_t*, const pthread_attr_t*, void* (*)(void*), void*)(thread, with, start,
                                                                                                argument);
}
int open(const char* path, int flags, ...) {
    va_list args;
    va_start(args, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
    va_end(args);
    const int writes = (flags & O_ACCMODE) != O_RDONLY;
    if (!writes && fails_at("openr", path)) return -1;
    return writes && fails("open") ? -1 : (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}
ssize_t pread(int fd, void* data, size_t n, off_t at) {
    return fails_of("read", fd) ? -1 : syscall(SYS_pread64, fd, data, n, at);
}
int stat(const char* path, struct stat* s) {
    return fails_at("stat", path) ? -1 : (int)syscall(SYS_newfstatat, AT_FDCWD, path, s, 0);
}
int access(const char* path, int mode) {
    return fails_at("stat", path) ? -1 : (int)syscall(SYS_faccessat, AT_FDCWD, path, mode);
}
struct dirent* readdir(DIR* folder) {
    return fails_of("list", dirfd(folder)) ? NULL : REAL(struct dirent*, readdir, DIR*)(folder);
}
ssize_t write(int fd, const void* data, size_t n) {
    return fd > 2 && fails("write") ? -1 : syscall(SYS_write, fd, data, n);
}
int fsync(int fd) { return fails("fsync") ? -1 : (int)syscall(SYS_fsync, fd); }
int close(int fd) { const int r = (int)syscall(SYS_close, fd); return fd > 2 && fails("close") ? -1 : r; }
int rename(const char* from, const char* to) {
    return fails_at("rename", from) ? -1 : (int)syscall(SYS_rename, from, to);
}
int renameat2(int a, const char* from, int b, const char* to, unsigned flags) {
    return fails_at("rename", from) ? -1 : (int)syscall(SYS_renameat2, a, from, b, to, flags);
}
int mkdir(const char* path, mode_t mode) { return fails("mkdir") ? -1 : (int)syscall(SYS_mkdir, path, mode); }
int unlink(const char* path) { return fails("unlink") ? -1 : (int)syscall(SYS_unlink, path); }
int remove(const char* path) {
    if (fails("unlink")) return -1;
    const int r = (int)syscall(SYS_unlink, path);
    return r != 0 && (errno == EISDIR || errno == EPERM) ? (int)syscall(SYS_rmdir, path) : r;
}
ssize_t recv(int fd, void* data, size_t n, int flags) {
    const ssize_t got = syscall(SYS_recvfrom, fd, data, n, flags, NULL, NULL);
    if (got > 10000 && fails("recv")) ((char*)data)[got / 2] ^= 1;
    return got;
}
int unlinkat(int fd, const char* path, int flags) {
    return fails("unlink") ? -1 : (int)syscall(SYS_unlinkat, fd, path, flags);
}
