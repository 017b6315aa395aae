// The bare kernel: attaches a network namespace to bridges with nothing but the netlink messages that it takes, and detaches it, as
// a floor for what any program can reach.   bare NETNS ROUNDS BRIDGE...   prints "ATTACH_NS DETACH_NS" for each round.
// A network: RTM_NEWLINK (the veth pair, the host's end in the bridge and up, the pod's end in its namespace), RTM_NEWLINK (the
// pod's end up), RTM_NEWADDR. Detached is a link when the kernel reports it gone, which is before RTM_DELLINK returns.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <errno.h>

static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void die(const char *what) {
  perror(what);
  exit(1);
}

struct request {
  struct nlmsghdr header;
  union {
    struct ifinfomsg link;
    struct ifaddrmsg address;
  };
  char room[1024];
};

static struct rtattr *put(struct request *r, int type, const void *data, int length) {
  struct rtattr *a = (struct rtattr *)((char *)r + NLMSG_ALIGN(r->header.nlmsg_len));
  a->rta_type = type, a->rta_len = RTA_LENGTH(length);
  if (length) memcpy(RTA_DATA(a), data, length);
  r->header.nlmsg_len = NLMSG_ALIGN(r->header.nlmsg_len) + RTA_ALIGN(a->rta_len);
  return a;
}

static void end(struct request *r, struct rtattr *a) {
  a->rta_len = (char *)r + r->header.nlmsg_len - (char *)a;
}

static void init(struct request *r, int type, int flags, int size) {
  static uint32_t sequence;
  memset(r, 0, sizeof *r);
  r->header.nlmsg_type = type, r->header.nlmsg_flags = NLM_F_REQUEST | flags;
  r->header.nlmsg_seq = ++sequence, r->header.nlmsg_len = NLMSG_LENGTH(size);
}

static int rtnetlink(unsigned groups) {
  struct sockaddr_nl self = {.nl_family = AF_NETLINK, .nl_groups = groups};
  int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
  if (fd < 0 || bind(fd, (void *)&self, sizeof self)) die("netlink socket");
  return fd;
}

static void transact(int fd, struct request *r, const char *what) {
  char answer[4096];
  r->header.nlmsg_flags |= NLM_F_ACK;
  if (send(fd, r, r->header.nlmsg_len, 0) < 0) die(what);
  if (recv(fd, answer, sizeof answer, 0) < 0) die(what);
  struct nlmsgerr *error = NLMSG_DATA((struct nlmsghdr *)answer);
  if (error->error) errno = -error->error, die(what);
}

static void attach(int host, int pod, int netns, int bridge, int n) {
  struct request r;
  char name[16], ethernet[16];
  uint32_t master = bridge;
  snprintf(name, sizeof name, "bare%d", n), snprintf(ethernet, sizeof ethernet, "net%d", n);
  init(&r, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, sizeof r.link);
  r.link.ifi_flags = r.link.ifi_change = IFF_UP;
  put(&r, IFLA_IFNAME, name, strlen(name) + 1), put(&r, IFLA_MASTER, &master, 4);
  struct rtattr *info = put(&r, IFLA_LINKINFO, NULL, 0);
  put(&r, IFLA_INFO_KIND, "veth", 4);
  struct rtattr *data = put(&r, IFLA_INFO_DATA, NULL, 0);
  struct rtattr *peer = put(&r, VETH_INFO_PEER, NULL, 0);
  r.header.nlmsg_len += sizeof(struct ifinfomsg);
  put(&r, IFLA_IFNAME, ethernet, strlen(ethernet) + 1), put(&r, IFLA_NET_NS_FD, &netns, 4);
  end(&r, peer), end(&r, data), end(&r, info);
  transact(host, &r, "veth");

  init(&r, RTM_NEWLINK, 0, sizeof r.link);
  r.link.ifi_flags = r.link.ifi_change = IFF_UP;
  put(&r, IFLA_IFNAME, ethernet, strlen(ethernet) + 1);
  transact(pod, &r, "up");

  // The address needs the index: the one look-up.
  char answer[8192];
  init(&r, RTM_GETLINK, 0, sizeof r.link);
  put(&r, IFLA_IFNAME, ethernet, strlen(ethernet) + 1);
  if (send(pod, &r, r.header.nlmsg_len, 0) < 0 || recv(pod, answer, sizeof answer, 0) < 0) die("getlink");
  int index = ((struct ifinfomsg *)NLMSG_DATA((struct nlmsghdr *)answer))->ifi_index;

  uint32_t address = htonl(0x0a630002 + n * 256);
  init(&r, RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, sizeof r.address);
  r.address.ifa_family = AF_INET, r.address.ifa_prefixlen = 24, r.address.ifa_index = index;
  put(&r, IFA_LOCAL, &address, 4), put(&r, IFA_ADDRESS, &address, 4);
  transact(pod, &r, "address");
}

// Sends from a process of its own, since the call returns only after the kernel's grace period.
static void detach(int events, int n) {
  struct request r;
  char name[16], buffer[65536];
  snprintf(name, sizeof name, "bare%d", n);
  unsigned index = if_nametoindex(name);
  pid_t pid = fork();
  if (pid < 0) die("fork");
  if (pid == 0) {
    int fd = rtnetlink(0);
    init(&r, RTM_DELLINK, 0, sizeof r.link);
    r.link.ifi_index = index;
    transact(fd, &r, "dellink");
    _exit(0);
  }
  for (;;) {
    int length = recv(events, buffer, sizeof buffer, 0);
    if (length < 0) die("events");
    for (struct nlmsghdr *h = (void *)buffer; NLMSG_OK(h, length); h = NLMSG_NEXT(h, length)) {
      struct ifinfomsg *link = NLMSG_DATA(h);
      // A bridge port's own event has the family AF_BRIDGE.
      if (h->nlmsg_type == RTM_DELLINK && link->ifi_family == AF_UNSPEC && (unsigned)link->ifi_index == index) return;
    }
  }
}

int main(int argc, char **argv) {
  if (argc < 4) return fprintf(stderr, "usage: bare NETNS ROUNDS BRIDGE...\n"), 2;
  int home = open("/proc/self/ns/net", O_RDONLY), netns = open(argv[1], O_RDONLY), rounds = atoi(argv[2]), count = argc - 3;
  if (home < 0 || netns < 0) die(argv[1]);
  for (int round = 0; round < rounds; round++) {
    int64_t start = now();
    if (setns(netns, CLONE_NEWNET)) die("setns");
    int pod = rtnetlink(0);
    if (setns(home, CLONE_NEWNET)) die("setns");
    int host = rtnetlink(0);
    for (int n = 0; n < count; n++) attach(host, pod, netns, if_nametoindex(argv[3 + n]), n);
    int64_t attached = now() - start;
    close(pod), close(host);
    int events = rtnetlink(RTMGRP_LINK);
    start = now();
    for (int n = 0; n < count; n++) detach(events, n);
    printf("%lld %lld\n", (long long)attached, (long long)(now() - start));
    close(events);
    usleep(30000); // the senders end
  }
  return 0;
}
