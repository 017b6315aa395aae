/* The native half of the stub: what the script can call, and text for it. */
#ifndef PODNET_HOST_H
#define PODNET_HOST_H

#include <stddef.h>
#include <stdint.h>

#include "quickjs.h"

/* What the script gave to exit(); -1: it did not. */
extern int host_exit_code;

/* Adds the global `podnetHost` (host.ts, with descriptors for connections). */
void add_host(JSContext *ctx, int argc, char **argv);

/*
 * Bytes to text, U+FFFD for each byte that is not UTF-8. The engine's own decoder would take a good byte after a bad
 * one along (a closing quote, say), so it only gets what is well-formed.
 */
JSValue new_text(JSContext *ctx, const uint8_t *data, size_t length);

#endif
