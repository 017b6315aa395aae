const calls =
  "sendto,sendmsg,write,pwrite64,writev,openat,open,creat,rename,renameat,renameat2,unlink,unlinkat,mkdir,mkdirat,rmdir,link,linkat," +
  "symlink,symlinkat,truncate,ftruncate,chmod,fchmod,fchmodat,chown,utimensat,mount,umount2,execve,ioctl,setxattr,clone,clone3,fork,vfork,mknod,mknodat,fallocate";

/** Puts a daemon under strace, for scenario-trace.ts. -D: it stays the child of who started it. */
export function straced(trace: string): (command: readonly string[]) => string[] {
  const strace = ["strace", "-D", "-f", "-qq", "-y", "-s", "120", "-e", `trace=${calls}`];
  return (command) => [...strace, "-e", "signal=none", "-o", trace, ...command];
}
