/*
 * podnet --run-delegate --cgroup FILE|- --mntns FILE|- -- PROGRAM
 *
 * Becomes PROGRAM, a CNI executable, with podnetd's environment and descriptors, but in a cgroup of its own (its memory
 * is not the daemon's) and in the host's mount namespace: two things that Node's spawn can't do. In order: enter the cgroup
 * namespace beside the mount namespace, write "0" to the cgroup.procs FILE, enter the mount namespace FILE, start a session, forget what Node left behind (signal mask,
 * ignored signals, parent-death signal), execute. "-" leaves a step out. The program must be an absolute path, since
 * entering a mount namespace changes the working directory to its root.
 */
#define _GNU_SOURCE
#include "delegate.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define CANNOT_RUN 126
#define BUSY_TRIES 60 /* of 100 ms: an executable that is being replaced is busy for as long as the copy takes */

extern char **environ;

static int failed(const char *action, const char *subject)
{
    dprintf(STDERR_FILENO, "podnet: run delegate: %s \"%s\": %s\n", action, subject, strerror(errno));
    return CANNOT_RUN;
}

static int enter_cgroup(const char *file)
{
    int fd = open(file, O_WRONLY | O_CLOEXEC);
    int code = 0;

    if (fd < 0)
        return failed("open cgroup", file);
    if (write(fd, "0", 1) != 1)
        code = failed("enter cgroup", file);
    close(fd);
    return code;
}

/*
 * Where the cgroup file system is mounted with "nsdelegate", as systemd mounts it, nobody may be moved out of the cgroup namespace that the
 * mover is in: a daemon in a container could start no delegate outside of its own. So the cgroup namespace that lies beside the
 * mount namespace is entered first. Kernels without cgroup namespaces, and files that stand alone, need nothing of it.
 */
static int enter_cgroup_namespace(const char *mntns)
{
    char file[PATH_MAX];
    const char *name = strrchr(mntns, '/');
    int fd;

    if (!name || strcmp(name, "/mnt") || (size_t)snprintf(file, sizeof file, "%.*s/cgroup", (int)(name - mntns), mntns) >= sizeof file)
        return 0;
    fd = open(file, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : failed("open cgroup namespace", file);
    if (setns(fd, CLONE_NEWCGROUP)) {
        int code = failed("enter cgroup namespace", file);

        close(fd);
        return code;
    }
    close(fd);
    return 0;
}

static int enter_mount_namespace(const char *file)
{
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    int code = 0;

    if (fd < 0)
        return failed("open mount namespace", file);
    if (setns(fd, CLONE_NEWNS))
        code = failed("enter mount namespace", file);
    close(fd);
    return code;
}

/* A new session is a new process group as well; who leads a group already can't start one and needs none. */
static int detach_from_parent(void)
{
    struct sigaction standard = {.sa_handler = SIG_DFL};
    sigset_t none;

    if (setsid() < 0 && errno != EPERM)
        return failed("start", "session");
    if (prctl(PR_SET_PDEATHSIG, 0))
        return failed("clear", "parent-death signal");
    for (int number = 1; number < NSIG; number++)
        sigaction(number, &standard, NULL); /* fails for KILL, STOP and libc's own: nothing to reset there */
    sigemptyset(&none);
    if (sigprocmask(SIG_SETMASK, &none, NULL))
        return failed("reset", "signal mask");
    return 0;
}

static int execute(char *program)
{
    const struct timespec pause = {.tv_nsec = 100000000};
    char *arguments[] = {program, NULL};

    for (int i = 0; i < BUSY_TRIES; i++) {
        execve(program, arguments, environ);
        if (errno != ETXTBSY)
            break;
        nanosleep(&pause, NULL);
    }
    return failed("execute", program);
}

int run_delegate(int argc, char **argv)
{
    int code = 0;

    if (argc != 6 || strcmp(argv[0], "--cgroup") || strcmp(argv[2], "--mntns") || strcmp(argv[4], "--")) {
        dprintf(STDERR_FILENO,
                "podnet: run delegate: usage: podnet --run-delegate --cgroup FILE|- --mntns FILE|- -- PROGRAM\n");
        return CANNOT_RUN;
    }
    if (argv[5][0] != '/') {
        errno = EINVAL;
        return failed("execute (must be an absolute path)", argv[5]);
    }
    if (strcmp(argv[3], "-"))
        code = enter_cgroup_namespace(argv[3]);
    if (!code && strcmp(argv[1], "-"))
        code = enter_cgroup(argv[1]);
    if (!code && strcmp(argv[3], "-"))
        code = enter_mount_namespace(argv[3]);
    if (!code)
        code = detach_from_parent();
    return code ? code : execute(argv[5]);
}
