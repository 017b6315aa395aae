/*
 * podnet on QuickJS: starts the engine with the stub's bytecode and runs it to its end. Only the parts of the language
 * that the stub uses are there; above all, no eval.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "delegate.h"
#include "host.h"
#include "wait.h"

#include "bytecode.h"

#define MEMORY_LIMIT (256u << 20) /* of the engine's heap, in bytes */

/* The last way out: what the script did not handle, for a person on stderr and for the runtime on stdout. */
static _Noreturn void die(JSContext *ctx)
{
    static const char answer[] =
        "{\"cniVersion\":\"1.1.0\",\"code\":999,\"msg\":\"run podnet: internal error, see its stderr\"}\n";
    JSValue error = JS_GetException(ctx);
    const char *text = JS_ToCString(ctx, error);

    dprintf(STDERR_FILENO, "podnet: %s\n", text ? text : "out of memory");
    if (write(STDOUT_FILENO, answer, sizeof answer - 1) < 0)
        dprintf(STDERR_FILENO, "podnet: write stdout: %s\n", strerror(errno));
    _exit(1);
}

/*
 * Without this a rejection that nobody handles would vanish, and with it the answer. A promise may be rejected a moment
 * before someone awaits it, so the reason is kept until the script has nothing left to do.
 */
static void rejected(JSContext *ctx, JSValueConst promise, JSValueConst reason, JS_BOOL handled, void *opaque)
{
    JSValue *kept = opaque;

    (void)promise;
    JS_FreeValue(ctx, *kept);
    *kept = handled ? JS_UNDEFINED : JS_DupValue(ctx, reason);
}

static int interrupted(JSRuntime *runtime, void *unused)
{
    (void)runtime;
    (void)unused;
    return script_overdue();
}

static void run_script(JSRuntime *runtime, JSContext *ctx)
{
    JSValue script = JS_ReadObject(ctx, bytecode, bytecode_size, JS_READ_OBJ_BYTECODE), result;
    JSContext *job;
    int more;

    if (JS_IsException(script))
        die(ctx);
    result = JS_EvalFunction(ctx, script);
    if (JS_IsException(result))
        die(ctx);
    JS_FreeValue(ctx, result);
    while ((more = JS_ExecutePendingJob(runtime, &job)) > 0)
        ;
    if (more < 0)
        die(job);
}

int main(int argc, char **argv)
{
    JSRuntime *runtime;
    JSContext *ctx;
    JSValue unhandled = JS_UNDEFINED;

    if (argc > 1 && !strcmp(argv[1], "--run-delegate"))
        return run_delegate(argc - 2, argv + 2);
    start_clock();
    signal(SIGPIPE, SIG_IGN);
    runtime = JS_NewRuntime();
    ctx = runtime ? JS_NewContextRaw(runtime) : NULL;
    if (!ctx) {
        dprintf(STDERR_FILENO, "podnet: out of memory\n");
        return 1;
    }
    JS_SetMemoryLimit(runtime, MEMORY_LIMIT);
    JS_SetInterruptHandler(runtime, interrupted, NULL);
    JS_SetHostPromiseRejectionTracker(runtime, rejected, &unhandled);
    JS_AddIntrinsicBaseObjects(ctx);
    JS_AddIntrinsicRegExp(ctx);
    JS_AddIntrinsicJSON(ctx);
    JS_AddIntrinsicTypedArrays(ctx);
    JS_AddIntrinsicPromise(ctx);
    add_host(ctx, argc, argv);
    run_script(runtime, ctx);
    if (host_exit_code < 0) {
        JS_Throw(ctx, unhandled);
        die(ctx);
    }
    JS_FreeValue(ctx, unhandled);
    JS_FreeContext(ctx);
    JS_FreeRuntime(runtime);
    return host_exit_code;
}
