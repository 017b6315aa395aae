/*
 * Time for the stub. Every wait has an end: callers pass `until`, milliseconds on a clock that starts with the process,
 * and a script that still runs after the last `until` that it asked for is to be interrupted.
 */
#ifndef PODNET_WAIT_H
#define PODNET_WAIT_H

#include <poll.h>

/* Sets the clock's zero. */
void start_clock(void);

double now_ms(void);

/* For poll(): what is left until `until`, rounded up so that nobody spins in the last millisecond. */
int left_ms(double until);

/* Waits for a descriptor; -1 and errno (ETIMEDOUT included) when it does not become ready. */
int wait_for(int fd, short events, double until);

/* The script waits until then, so it may run until then. */
void extend_script(double until);

/* True once the script runs on although its time is over. */
int script_overdue(void);

#endif
