/* The stub's second job: start a delegate for podnetd (see delegate.c). */
#ifndef PODNET_DELEGATE_H
#define PODNET_DELEGATE_H

/* Takes what follows --run-delegate. Does not return when PROGRAM starts; else the exit code, 126. */
int run_delegate(int argc, char **argv);

#endif
