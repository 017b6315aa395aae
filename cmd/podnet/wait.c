/* Time: see wait.h. */
#define _GNU_SOURCE
#include "wait.h"

#include <errno.h>
#include <time.h>

#define FIRST_LIMIT 120000.0 /* ms: the end of a script that never waits */
#define GRACE 1000.0         /* ms between a missed `until` and the interruption */

static struct timespec started;
static double script_limit = FIRST_LIMIT;

void start_clock(void)
{
    clock_gettime(CLOCK_MONOTONIC, &started);
}

double now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)(t.tv_sec - started.tv_sec) * 1e3 + (double)(t.tv_nsec - started.tv_nsec) / 1e6;
}

int left_ms(double until)
{
    double left = until - now_ms();

    if (!(left > 0))
        return 0;
    return left > 1e9 ? 1000000000 : (int)left + 1;
}

int script_overdue(void)
{
    return now_ms() > script_limit + GRACE;
}

void extend_script(double until)
{
    if (until > script_limit)
        script_limit = until;
}

int wait_for(int fd, short events, double until)
{
    struct pollfd item = {.fd = fd, .events = events};

    for (;;) {
        int n = poll(&item, 1, left_ms(until));

        if (n > 0) {
            if (item.revents & POLLNVAL) {
                errno = EBADF;
                return -1;
            }
            return 0;
        }
        if (n < 0 && errno != EINTR)
            return -1;
        if (left_ms(until) == 0) {
            errno = ETIMEDOUT;
            return -1;
        }
    }
}
