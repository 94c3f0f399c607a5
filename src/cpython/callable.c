#include "cpython/callable.h"

#include "cpython/type.h"

#include <string.h>

/* Objects/methodobject.c, descrobject.c, Modules/_functoolsmodule.c */
static const char *const in_c[] = {
    "builtin_function_or_method", "method_descriptor", "classmethod_descriptor",
    "wrapper_descriptor",         "method-wrapper",    "functools._lru_cache_wrapper",
    "functools.partial",
};

enum callable_kind callable_kind(struct runtime *runtime, remote_addr object) {
    struct type_info type;
    if (object == 0 || object % sizeof(remote_addr) != 0 || type_read(runtime, object, &type) != STATUS_OK)
        return CALLABLE_OTHER;
    if ((type.flags & TYPE_IS_TYPE) != 0)
        return CALLABLE_C;
    for (size_t i = 0; i < sizeof in_c / sizeof in_c[0]; i++)
        if (strcmp(type.full_name, in_c[i]) == 0)
            return CALLABLE_C;
    if (strcmp(type.full_name, "function") == 0)
        return CALLABLE_FUNCTION;
    return strcmp(type.full_name, "method") == 0 ? CALLABLE_METHOD : CALLABLE_OTHER;
}
