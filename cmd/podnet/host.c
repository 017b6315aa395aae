/*
 * What host.ts describes, for QuickJS: environment, clock, stdin, stdout, stderr and one unix socket; no eval, no modules,
 * no other files.
 */
#define _GNU_SOURCE
#include "host.h"
#include "wait.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define PIECE 65536 /* bytes that one receive() returns at most */

int host_exit_code = -1;

/* ---- values ----------------------------------------------------------------------------------- */

/* Reads the argument that says until when a call may wait. */
static int get_until(JSContext *ctx, double *until, JSValueConst value)
{
    if (JS_ToFloat64(ctx, until, value))
        return -1;
    extend_script(*until);
    return 0;
}

/* Throws an Error with the kernel's code ("ENOENT") in `code`. */
static JSValue throw_errno(JSContext *ctx, const char *action, int number)
{
    const char *name = strerrorname_np(number);
    JSValue error = JS_NewError(ctx);
    char text[128];

    if (JS_IsException(error))
        return error;
    snprintf(text, sizeof text, "%s: %s", action, strerror(number));
    JS_DefinePropertyValueStr(ctx, error, "message", JS_NewString(ctx, text), JS_PROP_C_W_E);
    JS_DefinePropertyValueStr(ctx, error, "code", JS_NewString(ctx, name ? name : "EIO"), JS_PROP_C_W_E);
    return JS_Throw(ctx, error);
}

static void free_bytes(JSRuntime *runtime, void *opaque, void *data)
{
    (void)runtime;
    (void)opaque;
    free(data);
}

/* A Uint8Array that owns `data` (from malloc). */
static JSValue new_bytes(JSContext *ctx, uint8_t *data, size_t length)
{
    /* buffer, offset, length: the engine reads all three, whatever count it is given */
    JSValue from[] = {JS_NewArrayBuffer(ctx, data, length, free_bytes, NULL, 0), JS_UNDEFINED, JS_UNDEFINED};
    JSValue bytes;

    if (JS_IsException(from[0])) {
        free(data);
        return from[0];
    }
    bytes = JS_NewTypedArray(ctx, 3, (JSValueConst *)from, JS_TYPED_ARRAY_UINT8);
    JS_FreeValue(ctx, from[0]);
    return bytes;
}

/* The bytes of a Uint8Array, valid as long as the caller holds the array; NULL after a throw. */
static const uint8_t *get_bytes(JSContext *ctx, size_t *length, JSValueConst value)
{
    size_t offset, whole;
    const uint8_t *data;
    JSValue buffer = JS_GetTypedArrayBuffer(ctx, value, &offset, length, NULL);

    if (JS_IsException(buffer))
        return NULL;
    data = JS_GetArrayBuffer(ctx, &whole, buffer);
    JS_FreeValue(ctx, buffer); /* the array keeps it alive */
    if (!data)
        return NULL;
    if (offset > whole || *length > whole - offset) {
        JS_ThrowRangeError(ctx, "bytes out of range");
        return NULL;
    }
    return data + offset;
}

/* ---- what the script can call (host.ts) ------------------------------------------------------- */

#define NATIVE(name) static JSValue name(JSContext *ctx, JSValueConst self, int argc, JSValueConst *argv)
#define UNUSED_ARGUMENTS ((void)self, (void)argc)

NATIVE(host_env)
{
    const char *name = JS_ToCString(ctx, argv[0]);
    const char *value;

    UNUSED_ARGUMENTS;
    if (!name)
        return JS_EXCEPTION;
    value = getenv(name);
    JS_FreeCString(ctx, name);
    return value ? new_text(ctx, (const uint8_t *)value, strlen(value)) : JS_UNDEFINED;
}

NATIVE(host_now)
{
    UNUSED_ARGUMENTS;
    (void)argv;
    return JS_NewFloat64(ctx, now_ms());
}

NATIVE(host_sleep)
{
    double until;
    int left;

    UNUSED_ARGUMENTS;
    if (get_until(ctx, &until, argv[0]))
        return JS_EXCEPTION;
    while ((left = left_ms(until)) > 0)
        poll(NULL, 0, left);
    return JS_UNDEFINED;
}

NATIVE(host_read_stdin)
{
    size_t capacity = PIECE, length = 0;
    uint8_t *data = malloc(capacity), *larger;
    double limit, until;
    int failure = 0;

    UNUSED_ARGUMENTS;
    if (!data)
        return JS_ThrowOutOfMemory(ctx);
    if (JS_ToFloat64(ctx, &limit, argv[0]) || get_until(ctx, &until, argv[1])) {
        free(data);
        return JS_EXCEPTION;
    }
    for (;;) {
        ssize_t n;

        if (length == capacity) {
            larger = realloc(data, capacity * 2);
            if (!larger) {
                free(data);
                return JS_ThrowOutOfMemory(ctx);
            }
            data = larger;
            capacity *= 2;
        }
        if (wait_for(STDIN_FILENO, POLLIN, until)) {
            failure = errno;
            break;
        }
        n = read(STDIN_FILENO, data + length, capacity - length);
        if (n == 0)
            break;
        if (n < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (n < 0) {
            failure = errno;
            break;
        }
        length += (size_t)n;
        if ((double)length > limit) {
            failure = EMSGSIZE;
            break;
        }
    }
    if (!failure)
        return new_bytes(ctx, data, length);
    free(data);
    return throw_errno(ctx, "read stdin", failure);
}

NATIVE(host_connect)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length;
    double until;
    const char *path;
    int fd, failure;

    UNUSED_ARGUMENTS;
    if (get_until(ctx, &until, argv[1])) /* connecting to a unix socket never waits: it is done or refused */
        return JS_EXCEPTION;
    path = JS_ToCStringLen(ctx, &length, argv[0]);
    if (!path)
        return JS_EXCEPTION;
    if (length >= sizeof address.sun_path) {
        JS_FreeCString(ctx, path);
        return throw_errno(ctx, "connect", ENAMETOOLONG);
    }
    memcpy(address.sun_path, path, length);
    JS_FreeCString(ctx, path);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return throw_errno(ctx, "socket", errno);
    if (!connect(fd, (struct sockaddr *)&address, sizeof address))
        return JS_NewInt32(ctx, fd);
    failure = errno;
    close(fd);
    return throw_errno(ctx, "connect", failure);
}

/* Writes all; `pipe` descriptors may block, so they get no more at once than a ready pipe takes (pipe(7)). */
static JSValue write_all(JSContext *ctx, int fd, int pipe, JSValueConst *argv)
{
    size_t length, at = 0;
    double until;
    const uint8_t *data = get_bytes(ctx, &length, argv[0]);

    if (!data || get_until(ctx, &until, argv[1]))
        return JS_EXCEPTION;
    while (at < length) {
        size_t most = length - at;
        ssize_t n;

        if (wait_for(fd, POLLOUT, until))
            return throw_errno(ctx, "write", errno);
        if (pipe && most > 4096)
            most = 4096;
        n = write(fd, data + at, most);
        if (n < 0 && errno != EINTR && errno != EAGAIN)
            return throw_errno(ctx, "write", errno);
        if (n > 0)
            at += (size_t)n;
    }
    return JS_UNDEFINED;
}

NATIVE(host_write)
{
    int fd;

    UNUSED_ARGUMENTS;
    if (JS_ToInt32(ctx, &fd, argv[0]))
        return JS_EXCEPTION;
    return write_all(ctx, fd, 1, argv + 1);
}

NATIVE(host_send)
{
    int fd;

    UNUSED_ARGUMENTS;
    if (JS_ToInt32(ctx, &fd, argv[0]))
        return JS_EXCEPTION;
    return write_all(ctx, fd, 0, argv + 1);
}

NATIVE(host_receive)
{
    double until;
    int fd, failure;
    uint8_t *data, *smaller;
    ssize_t n;

    UNUSED_ARGUMENTS;
    if (JS_ToInt32(ctx, &fd, argv[0]) || get_until(ctx, &until, argv[1]))
        return JS_EXCEPTION;
    data = malloc(PIECE);
    if (!data)
        return JS_ThrowOutOfMemory(ctx);
    do
        n = wait_for(fd, POLLIN, until) ? -1 : read(fd, data, PIECE);
    while (n < 0 && (errno == EINTR || errno == EAGAIN));
    if (n < 0) {
        failure = errno;
        free(data);
        return throw_errno(ctx, "receive", failure);
    }
    smaller = realloc(data, n > 0 ? (size_t)n : 1); /* many small pieces must not cost 64 KiB each */
    return new_bytes(ctx, smaller ? smaller : data, (size_t)n);
}

NATIVE(host_close)
{
    int fd;

    UNUSED_ARGUMENTS;
    if (JS_ToInt32(ctx, &fd, argv[0]))
        return JS_EXCEPTION;
    close(fd);
    return JS_UNDEFINED;
}

NATIVE(host_encode)
{
    size_t length;
    const char *text = JS_ToCStringLen(ctx, &length, argv[0]);
    uint8_t *data;

    UNUSED_ARGUMENTS;
    if (!text)
        return JS_EXCEPTION;
    data = malloc(length ? length : 1);
    if (data)
        memcpy(data, text, length);
    JS_FreeCString(ctx, text);
    return data ? new_bytes(ctx, data, length) : JS_ThrowOutOfMemory(ctx);
}

NATIVE(host_decode)
{
    size_t length;
    const uint8_t *data = get_bytes(ctx, &length, argv[0]);

    UNUSED_ARGUMENTS;
    return data ? new_text(ctx, data, length) : JS_EXCEPTION;
}

/* The process ends when the script has nothing left to do; release builds do not tidy up before. */
NATIVE(host_exit)
{
    UNUSED_ARGUMENTS;
    if (JS_ToInt32(ctx, &host_exit_code, argv[0]))
        return JS_EXCEPTION;
#ifndef TIDY_EXIT
    _exit(host_exit_code);
#endif
    return JS_UNDEFINED;
}

static const JSCFunctionListEntry natives[] = {
    JS_CFUNC_DEF("env", 1, host_env),         JS_CFUNC_DEF("now", 0, host_now),
    JS_CFUNC_DEF("sleep", 1, host_sleep),     JS_CFUNC_DEF("readStdin", 2, host_read_stdin),
    JS_CFUNC_DEF("connect", 2, host_connect), JS_CFUNC_DEF("send", 3, host_send),
    JS_CFUNC_DEF("receive", 2, host_receive), JS_CFUNC_DEF("close", 1, host_close),
    JS_CFUNC_DEF("write", 3, host_write),     JS_CFUNC_DEF("encode", 1, host_encode),
    JS_CFUNC_DEF("decode", 1, host_decode),   JS_CFUNC_DEF("exit", 1, host_exit),
};

void add_host(JSContext *ctx, int argc, char **argv)
{
    JSValue global = JS_GetGlobalObject(ctx), host = JS_NewObject(ctx), args = JS_NewArray(ctx);

    JS_SetPropertyFunctionList(ctx, host, natives, sizeof natives / sizeof natives[0]);
    for (int i = 1; i < argc; i++)
        JS_SetPropertyUint32(ctx, args, (uint32_t)i - 1,
                             new_text(ctx, (const uint8_t *)argv[i], strlen(argv[i])));
    JS_SetPropertyStr(ctx, host, "args", args);
    JS_SetPropertyStr(ctx, global, "podnetHost", host);
    JS_FreeValue(ctx, global);
}
