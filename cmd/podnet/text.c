/* Bytes to text for the engine: see new_text in host.h. */
#include "host.h"

#include <stdlib.h>
#include <string.h>

/* The length of the well-formed UTF-8 sequence at `p` (RFC 3629), 0 where there is none. */
static size_t utf8_sequence(const uint8_t *p, size_t left)
{
    uint8_t low = 0x80, high = 0xbf;
    size_t length, i;

    if (p[0] < 0x80)
        return 1;
    if (p[0] >= 0xc2 && p[0] <= 0xdf)
        length = 2;
    else if (p[0] >= 0xe0 && p[0] <= 0xef)
        length = 3;
    else if (p[0] >= 0xf0 && p[0] <= 0xf4)
        length = 4;
    else
        return 0;
    if (length > left)
        return 0;
    switch (p[0]) {
    case 0xe0: low = 0xa0; break;  /* overlong */
    case 0xed: high = 0x9f; break; /* surrogates */
    case 0xf0: low = 0x90; break;  /* overlong */
    case 0xf4: high = 0x8f; break; /* above U+10FFFF */
    }
    if (p[1] < low || p[1] > high)
        return 0;
    for (i = 2; i < length; i++)
        if (p[i] < 0x80 || p[i] > 0xbf)
            return 0;
    return length;
}

JSValue new_text(JSContext *ctx, const uint8_t *data, size_t length)
{
    size_t at = 0, size = 0, n;
    uint8_t *clean;
    JSValue text;

    while (at < length && (n = utf8_sequence(data + at, length - at)))
        at += n;
    if (at == length)
        return JS_NewStringLen(ctx, (const char *)data, length);
    clean = malloc(length * 3);
    if (!clean)
        return JS_ThrowOutOfMemory(ctx);
    for (at = 0; at < length; at += n ? n : 1) {
        n = utf8_sequence(data + at, length - at);
        memcpy(clean + size, n ? data + at : (const uint8_t *)"\xef\xbf\xbd", n ? n : 3);
        size += n ? n : 3;
    }
    text = JS_NewStringLen(ctx, (const char *)clean, size);
    free(clean);
    return text;
}
