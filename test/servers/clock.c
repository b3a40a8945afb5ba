/*
 * A wall clock that a test sets: loaded into a server with LD_PRELOAD, it answers with the time that stands in the file
 * named by HOLDFAST_CLOCK, in nanoseconds since 1970. It stands still until the file is changed. The monotonic clock,
 * by which a server paces its own work, is left alone. With HOLDFAST_CLOCK_AHEAD instead, in milliseconds, it goes on,
 * and is ahead of the real one by as much: the clock of a host that is wrong.
 *
 * A thread that waits until some time by the wall clock waits as long as it meant to: the kernel does not know of ours,
 * by which that time may be months away. MariaDB waits so to write pages, and would sometimes never do.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *wall;
static int64_t ahead;

__attribute__((constructor)) static void open_clock(void) {
  const char *path = getenv("HOLDFAST_CLOCK"), *milliseconds = getenv("HOLDFAST_CLOCK_AHEAD");
  if (milliseconds != NULL) ahead = atoll(milliseconds) * 1000000;
  int file = path == NULL ? -1 : open(path, O_RDONLY);
  if (file < 0) return;
  void *memory = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
  close(file);
  if (memory != MAP_FAILED) wall = memory;
}

int clock_gettime(clockid_t id, struct timespec *now) {
  int is_wall = id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE;
  if ((wall == NULL && ahead == 0) || !is_wall) return (int)syscall(SYS_clock_gettime, id, now);
  int64_t nanoseconds;
  if (wall == NULL) {
    if (syscall(SYS_clock_gettime, id, now) != 0) return -1;
    nanoseconds = now->tv_sec * 1000000000 + now->tv_nsec + ahead;
  } else {
    nanoseconds = *wall;
  }
  now->tv_sec = nanoseconds / 1000000000;
  now->tv_nsec = nanoseconds % 1000000000;
  return 0;
}

int gettimeofday(struct timeval *now, void *zone) {
  (void)zone;
  struct timespec precise;
  if (clock_gettime(CLOCK_REALTIME, &precise) != 0) return -1;
  now->tv_sec = precise.tv_sec;
  now->tv_usec = precise.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *now) {
  struct timespec precise;
  clock_gettime(CLOCK_REALTIME, &precise);
  if (now != NULL) *now = precise.tv_sec;
  return precise.tv_sec;
}

/* As seconds: no server has run, by the monotonic clock, for thirty years, and none means to wait for that long. */
#define AGE 1000000000

int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *until) {
  if (until->tv_sec < AGE) return pthread_cond_clockwait(condition, mutex, CLOCK_MONOTONIC, until);
  if (wall == NULL && ahead == 0) return pthread_cond_clockwait(condition, mutex, CLOCK_REALTIME, until);
  struct timespec now, ours;
  clock_gettime(CLOCK_REALTIME, &ours);
  clock_gettime(CLOCK_MONOTONIC, &now);
  int64_t seconds = until->tv_sec - ours.tv_sec < AGE ? until->tv_sec - ours.tv_sec : AGE;
  int64_t nanoseconds = now.tv_nsec + until->tv_nsec - ours.tv_nsec + 1000000000;
  struct timespec end = {now.tv_sec + seconds - 1 + nanoseconds / 1000000000, nanoseconds % 1000000000};
  return pthread_cond_clockwait(condition, mutex, CLOCK_MONOTONIC, &end);
}
