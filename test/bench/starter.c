// Starts programs as a container runtime does and measures each from before its start to after its end. It is C so that the
// measuring costs little: Node needs more for one start than the stub runs.
//
// Commands, a line each, on stdin:  P JOB[,JOB...] [JOB[,JOB...]...]
//   P groups run at once; the jobs of a group one after the other. A JOB is a file: the program, the file for its stdin, then its
//   environment, a line each. In its stdin "@PATH@" (with the quotes) stands for the content of that file: what an earlier job of the group
//   printed, as a runtime hands the result of one plugin to the next.
// Answer, a line:  WALL_NS CPU_US MAXRSS_KB FAILED NS[,NS...]
//   wall time of the whole command, processor time of all its processes with their children, the largest resident size, how many
//   jobs failed (their stdout is in JOB.out), and each group's own wall time.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LIMIT 4096

struct job {
  char *program, *input, *env[64], *output;
};
struct sum {
  int64_t wall, cpu, failed, rss;
};

static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void die(const char *what) {
  perror(what);
  exit(1);
}

static void load(struct job *job, char *path) {
  FILE *file = fopen(path, "r");
  if (!file) die(path);
  char *line = NULL;
  size_t room = 0;
  ssize_t length;
  int lines = 0, variables = 0;
  memset(job, 0, sizeof *job);
  while ((length = getline(&line, &room, file)) > 0) {
    if (line[length - 1] == '\n') line[length - 1] = 0;
    char *copy = strdup(line);
    if (lines == 0) job->program = copy;
    else if (lines == 1) job->input = copy;
    else if (variables < 63) job->env[variables++] = copy;
    lines++;
  }
  free(line);
  fclose(file);
  if (lines < 2 || asprintf(&job->output, "%s.out", path) < 0) die(path);
}

// The job's stdin, with the content of the file that it names put in.
static int input(const char *path) {
  int in = open(path, O_RDONLY);
  char text[65536], name[4096];
  ssize_t length = in < 0 ? -1 : pread(in, text, sizeof text - 1, 0);
  if (length < 0) die(path);
  text[length] = 0;
  char *from = strstr(text, "\"@"), *to = from ? strstr(from, "@\"") : NULL;
  if (!to) return in;
  close(in);
  snprintf(name, sizeof name, "%.*s", (int)(to - from - 2), from + 2);
  int whole = memfd_create("stdin", 0), other = open(name, O_RDONLY);
  char content[65536];
  ssize_t size = other < 0 ? -1 : read(other, content, sizeof content);
  if (whole < 0 || size < 0) die(name);
  close(other);
  if (write(whole, text, from - text) < 0 || write(whole, content, size) < 0 || write(whole, to + 2, strlen(to + 2)) < 0) die(path);
  lseek(whole, 0, SEEK_SET);
  return whole;
}

static void run(struct job *job, struct sum *sum) {
  char *argv[] = {job->program, NULL};
  int in = input(job->input);
  int64_t start = now();
  pid_t pid = vfork();
  if (pid < 0) die("vfork");
  if (pid == 0) {
    int out = open(job->output, O_WRONLY | O_CREAT | O_TRUNC, 0600), none = open("/dev/null", O_WRONLY);
    if (out < 0 || none < 0) _exit(127);
    dup2(in, 0), dup2(out, 1), dup2(none, 2), close(in), close(out), close(none);
    execve(job->program, argv, job->env);
    _exit(127);
  }
  int status;
  struct rusage use;
  if (wait4(pid, &status, 0, &use) < 0) die("wait4");
  sum->wall += now() - start;
  close(in);
  sum->cpu += (use.ru_utime.tv_sec + use.ru_stime.tv_sec) * 1000000LL + use.ru_utime.tv_usec + use.ru_stime.tv_usec;
  if (use.ru_maxrss > sum->rss) sum->rss = use.ru_maxrss;
  if (status != 0) sum->failed++;
}

int main(void) {
  static struct job jobs[LIMIT];
  static int ends[LIMIT];
  struct sum *sums = mmap(NULL, sizeof(struct sum) * LIMIT, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (sums == MAP_FAILED) die("mmap");
  char *line = NULL;
  size_t room = 0;
  while (getline(&line, &room, stdin) > 0) {
    line[strcspn(line, "\n")] = 0;
    char *rest = line, *word = strsep(&rest, " ");
    int parallel = atoi(word), groups = 0, count = 0;
    while ((word = strsep(&rest, " "))) {
      char *path;
      while ((path = strsep(&word, ","))) {
        if (count == LIMIT) die("too many jobs");
        load(&jobs[count++], path);
      }
      ends[groups++] = count;
    }
    memset(sums, 0, sizeof(struct sum) * LIMIT);
    int64_t start = now();
    if (parallel <= 1) {
      for (int group = 0, at = 0; group < groups; group++)
        for (; at < ends[group]; at++) run(&jobs[at], &sums[group]);
    } else {
      int running = 0;
      for (int group = 0; group < groups; group++) {
        if (running == parallel) wait(NULL), running--;
        pid_t pid = fork();
        if (pid < 0) die("fork");
        if (pid == 0) {
          for (int at = group ? ends[group - 1] : 0; at < ends[group]; at++) run(&jobs[at], &sums[group]);
          _exit(0);
        }
        running++;
      }
      while (wait(NULL) > 0) {}
    }
    int64_t wall = now() - start, cpu = 0, rss = 0, failed = 0;
    for (int group = 0; group < groups; group++) {
      cpu += sums[group].cpu, failed += sums[group].failed;
      if (sums[group].rss > rss) rss = sums[group].rss;
    }
    printf("%lld %lld %lld %lld ", (long long)wall, (long long)cpu, (long long)rss, (long long)failed);
    for (int group = 0; group < groups; group++) printf("%s%lld", group ? "," : "", (long long)sums[group].wall);
    printf("\n");
    fflush(stdout);
    for (int at = 0; at < count; at++) {
      for (int i = 0; jobs[at].env[i]; i++) free(jobs[at].env[i]);
      free(jobs[at].program), free(jobs[at].input), free(jobs[at].output);
    }
  }
  return 0;
}
