#include "cpython/library.h"

#include "cpython/dict.h"
#include "cpython/str.h"

#include <string.h>

enum { MAX_PATH_CHARACTERS = 4096 };

/* sys.modules['os'].__file__. Lib/site.py imports os, and -S does without; os is not frozen without a file. */
static enum status find_file(struct runtime *runtime, const struct interp *interp, remote_addr *file) {
    remote_addr module = 0, dict = 0;
    if (interp->modules == 0)
        return STATUS_NOT_FOUND;
    TRY(dict_find_text(runtime, interp->modules, "os", &module));
    TRY(memory_read_u64(runtime->objects, module + runtime->layout.module.md_dict, &dict));
    return dict_find_text(runtime, dict, "__file__", file);
}

enum status library_read_folder(struct runtime *runtime, const struct interp *interp, struct buffer *folder) {
    remote_addr file = 0;
    bool cut = false;
    size_t start = folder->size_bytes;
    TRY(find_file(runtime, interp, &file));
    TRY(string_read(runtime, file, MAX_PATH_CHARACTERS, folder, &cut));
    const char *path = buffer_text(folder) + start;
    const char *slash = strrchr(path, '/');
    bool is_path = !cut && path[0] == '/' && strlen(path) == folder->size_bytes - start;
    /* What lies in / itself is no library's folder. */
    if (!is_path || slash == path) {
        buffer_truncate(folder, start);
        return STATUS_NOT_FOUND;
    }
    buffer_truncate(folder, (size_t)(slash - buffer_text(folder)));
    return STATUS_OK;
}
