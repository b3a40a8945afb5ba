/*
 * A wall clock that a test sets: loaded into a server with LD_PRELOAD, it answers with the time that stands in the file named by HOLDFAST_CLOCK, in
 * nanoseconds since 1970. It stands still until the file is changed. The monotonic clock, by which a server paces its own work, is left alone.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *wall;

__attribute__((constructor)) static void open_clock(void) {
  const char *path = getenv("HOLDFAST_CLOCK");
  int file = path == NULL ? -1 : open(path, O_RDONLY);
  if (file < 0) return;
  void *memory = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
  close(file);
  if (memory != MAP_FAILED) wall = memory;
}

int clock_gettime(clockid_t id, struct timespec *now) {
  if (wall == NULL || (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE)) return (int)syscall(SYS_clock_gettime, id, now);
  int64_t nanoseconds = *wall;
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
