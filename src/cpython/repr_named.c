/* What shows as <kind name>. */
#include "cpython/repr_parts.h"

#include "base/bytes.h"
#include "cpython/copy.h"
#include "cpython/dict.h"
#include "cpython/str.h"

#include <string.h>

enum { POINTER_BYTES = 8, C_NAME_BYTES = 128 };

/* <word name>, the name being the str object at a field of the object; <word> when that is null. */
static enum status put_named(struct repr *repr, const char *word, remote_addr object, layout_offset field) {
    remote_addr name = 0;
    if (layout_has(field))
        TRY(memory_read_u64(repr->runtime->objects, object + field, &name));
    TRY(repr_put_format(repr, "<%s", word));
    if (name != 0) {
        TRY(repr_put(repr, " "));
        TRY(repr_put_name(repr, name));
    }
    return repr_put(repr, ">");
}

static enum status put_class_module(struct repr *repr, const struct type_info *type) {
    remote_addr module = 0;
    struct type_info module_type;
    bool builtin = false;
    if (dict_find_text(repr->runtime, type->dict, "__module__", &module) != STATUS_OK)
        return STATUS_OK;
    TRY(type_read(repr->runtime, module, &module_type));
    if ((module_type.flags & TYPE_IS_STR) == 0)
        return STATUS_OK;
    TRY(string_equals(repr->runtime, module, "builtins", &builtin));
    if (builtin)
        return STATUS_OK;
    TRY(repr_put_name(repr, module));
    return repr_put(repr, ".");
}

enum status repr_show_type(struct repr *repr, remote_addr object, const struct type_info *type) {
    (void)type;
    struct type_info self;
    remote_addr qualname = 0;
    TRY(type_read_at(repr->runtime, object, &self));
    TRY(repr_put(repr, "<class '"));
    if ((self.flags & TYPE_IS_HEAP_TYPE) == 0) {
        TRY(repr_put(repr, self.full_name));
        return repr_put(repr, "'>");
    }
    TRY(put_class_module(repr, &self));
    TRY(memory_read_u64(repr->runtime->objects, object + repr->runtime->layout.type.ht_qualname, &qualname));
    TRY(repr_put_name(repr, qualname));
    return repr_put(repr, "'>");
}

enum status repr_show_function(struct repr *repr, remote_addr object, const struct type_info *type) {
    (void)type;
    return put_named(repr, "function", object, repr->runtime->layout.function.func_qualname);
}

enum status repr_show_method(struct repr *repr, remote_addr object, const struct type_info *type) {
    (void)type;
    struct type_info callee;
    remote_addr function = 0;
    TRY(memory_read_u64(repr->runtime->objects, object + repr->runtime->layout.method.im_func, &function));
    TRY(type_read(repr->runtime, function, &callee));
    if (strcmp(callee.full_name, "function") == 0)
        return put_named(repr, "bound method", function, repr->runtime->layout.function.func_qualname);
    TRY(repr_put(repr, "<bound method "));
    TRY(repr_put_value(repr, function));
    return repr_put(repr, ">");
}

/* PyMethodDef begins with ml_name. What belongs to no object belongs to its module. */
enum status repr_show_builtin(struct repr *repr, remote_addr object, const struct type_info *type) {
    (void)type;
    const struct layout_builtin *builtin = &repr->runtime->layout.builtin;
    struct memory *memory = repr->runtime->objects;
    struct type_info owner;
    char name[C_NAME_BYTES];
    remote_addr method = 0;
    remote_addr name_address = 0;
    remote_addr self = 0;
    TRY(memory_read_u64(memory, object + builtin->m_ml, &method));
    TRY(memory_read_u64(memory, object + builtin->m_self, &self));
    TRY(memory_read_u64(memory, method, &name_address));
    TRY(memory_read_cstring(memory, name_address, name, sizeof name));
    string_repair_utf8(name);
    if (self != 0)
        TRY(type_read(repr->runtime, self, &owner));
    if (self == 0 || strcmp(owner.full_name, "module") == 0)
        return repr_put_format(repr, "<built-in function %s>", name);
    TRY(repr_put_format(repr, "<built-in method %s of ", name));
    return repr_put_format(repr, "%s object>", type_name(&owner));
}

enum status repr_show_module(struct repr *repr, remote_addr object, const struct type_info *type) {
    (void)type;
    remote_addr name = 0;
    TRY(memory_read_u64(repr->runtime->objects, object + repr->runtime->layout.module.md_name, &name));
    if (name == 0)
        return repr_put(repr, "<module>");
    TRY(repr_put(repr, "<module "));
    TRY(repr_put_value(repr, name));
    return repr_put(repr, ">");
}

enum status repr_show_generator(struct repr *repr, remote_addr object, const struct type_info *type) {
    return put_named(repr, type_name(type), object, repr->runtime->layout.gen.gi_qualname);
}

enum status repr_show_code(struct repr *repr, remote_addr object, const struct type_info *type) {
    (void)type;
    const struct layout_code *code = &repr->runtime->layout.code;
    return put_named(repr, "code object", object, layout_has(code->co_qualname) ? code->co_qualname : code->co_name);
}

enum status repr_show_cell(struct repr *repr, remote_addr object, const struct type_info *type) {
    (void)type;
    remote_addr content = 0;
    TRY(memory_read_u64(repr->runtime->objects, object + repr->runtime->layout.cell.ob_ref, &content));
    if (content == 0)
        return repr_put(repr, "<cell: empty>");
    TRY(repr_put(repr, "<cell: "));
    TRY(repr_put_value(repr, content));
    return repr_put(repr, ">");
}

/* PyWeakReference: wr_object behind the header, None when it is gone (Include/cpython/weakrefobject.h, 3.8 to 3.15). */
enum status repr_show_weakref(struct repr *repr, remote_addr object, const struct type_info *type) {
    (void)type;
    struct type_info target;
    remote_addr address = 0;
    TRY(memory_read_u64(repr->runtime->objects, object + repr->runtime->layout.object.size, &address));
    TRY(type_read(repr->runtime, address, &target));
    if (strcmp(target.full_name, "NoneType") == 0)
        return repr_put(repr, "<weakref; dead>");
    return repr_put_format(repr, "<weakref; to %s at 0x%llx>", type_name(&target), (unsigned long long)address);
}

static const char *descriptor_word(const char *name) {
    if (strcmp(name, "wrapper_descriptor") == 0)
        return "slot wrapper";
    if (strcmp(name, "getset_descriptor") == 0)
        return "attribute";
    return strcmp(name, "member_descriptor") == 0 ? "member" : "method";
}

/* PyDescrObject: d_type, d_name, d_qualname (Include/cpython/descrobject.h, 3.8 to 3.15). */
enum status repr_show_descriptor(struct repr *repr, remote_addr object, const struct type_info *type) {
    const struct layout_object *head = &repr->runtime->layout.object;
    struct type_info owner;
    struct copy copy;
    TRY(copy_read(repr->runtime->objects, object, head->size + POINTER_BYTES, &copy));
    TRY(type_read_at(repr->runtime, copy_u64(&copy, head->size), &owner));
    TRY(repr_put_format(repr, "<%s ", descriptor_word(type->full_name)));
    TRY(repr_put_value(repr, copy_u64(&copy, head->size + POINTER_BYTES)));
    return repr_put_format(repr, " of '%s' objects>", type_name(&owner));
}

/* sentinelobject (Objects/sentinelobject.c 3.15): its name, which is what it shows as, behind the header. */
enum status repr_show_sentinel(struct repr *repr, remote_addr object, const struct type_info *type) {
    (void)type;
    remote_addr name = 0;
    TRY(memory_read_u64(repr->runtime->objects, object + repr->runtime->layout.object.size, &name));
    return repr_put_name(repr, name);
}

/* PyLazyImportObject (Objects/lazyimportobject.c 3.15). */
struct lazy_import {
    remote_addr from; /* lz_from: the module's name; or the lazy import of which this is an attribute */
    remote_addr attr; /* lz_attr: null, a name, or a tuple of the names that are wanted of it */
    bool is_attribute;
    bool has_name;
};

static enum status read_lazy_import(struct repr *repr, remote_addr object, struct lazy_import *lazy) {
    const layout_offset from = repr->runtime->layout.object.size + POINTER_BYTES; /* behind lz_builtins */
    struct type_info type;
    struct copy copy;
    TRY(copy_read(repr->runtime->objects, object, from + POINTER_BYTES, &copy));
    *lazy = (struct lazy_import){.from = copy_u64(&copy, from), .attr = copy_u64(&copy, from + POINTER_BYTES)};
    TRY(type_read(repr->runtime, lazy->from, &type));
    lazy->is_attribute = (type.flags & TYPE_IS_STR) == 0;
    if (lazy->attr == 0)
        return STATUS_OK;
    TRY(type_read(repr->runtime, lazy->attr, &type));
    lazy->has_name = (type.flags & TYPE_IS_STR) != 0;
    return STATUS_OK;
}

/* `import a.b` makes one for "a.b", of which "b" is an attribute although its name begins with "a" alone. */
static enum status put_package(struct repr *repr, remote_addr name) {
    enum { MAX_NAME_CHARACTERS = 200, MAX_NAME_BYTES = 12 * MAX_NAME_CHARACTERS };
    struct buffer text;
    buffer_init(&text, MAX_NAME_BYTES);
    enum status status = string_read(repr->runtime, name, MAX_NAME_CHARACTERS, &text, NULL);
    if (status == STATUS_OK)
        status = repr_put_bytes(repr, buffer_text(&text), strcspn(buffer_text(&text), "."));
    buffer_release(&text);
    return status;
}

enum status repr_show_lazy_import(struct repr *repr, remote_addr object, const struct type_info *type) {
    enum { MAX_ATTRIBUTES = 16 };
    struct lazy_import chain[MAX_ATTRIBUTES];
    size_t last = 0;
    TRY(read_lazy_import(repr, object, &chain[0]));
    for (; chain[last].is_attribute; last++) {
        if (last + 1 == MAX_ATTRIBUTES)
            return STATUS_LIMIT;
        TRY(read_lazy_import(repr, chain[last].from, &chain[last + 1]));
    }
    TRY(repr_put_format(repr, "<%s '", type_name(type)));
    TRY(last > 0 && chain[last].attr == 0 ? put_package(repr, chain[last].from)
                                          : repr_put_name(repr, chain[last].from));
    for (size_t i = last + 1; i-- > 0;) {
        if (chain[i].has_name) {
            TRY(repr_put(repr, "."));
            TRY(repr_put_name(repr, chain[i].attr));
        } else if (i == 0 && chain[i].attr != 0) {
            TRY(repr_put(repr, "..."));
        }
    }
    return repr_put(repr, "'>");
}
