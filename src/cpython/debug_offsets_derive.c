/* What `_Py_DebugOffsets` does not say but follows from what it says: the neighbours of a field that it gives, in
 * structs whose order of fields is the same in 3.13, 3.14 and 3.15. docs/cpython-layouts.md lists every rule;
 * tests/live/test_layouts.py holds each against the headers of every interpreter. */
#include "cpython/debug_offsets.h"

enum { WORD = 8, INT = 4 };

static enum status require(bool holds, const char *what, struct error *error) {
    if (holds)
        return STATUS_OK;
    return error_set(error, STATUS_NOT_PYTHON, "its debug offsets contradict themselves: %s", what);
}

/* Include/object.h. A free-threaded header is {ob_tid, flags and local count, ob_ref_shared, ob_type}, without a
 * PyGC_Head before it. */
static enum status derive_object(struct layout *layout, struct error *error) {
    struct layout_object *object = &layout->object;
    layout_offset size = layout->free_threaded ? 4 * WORD : 2 * WORD;
    TRY(require(object->size == size && object->ob_type == size - WORD, "the object header's size", error));
    object->ob_size = size;
    object->var_size = size + WORD;
    object->gc_head = layout->free_threaded ? 0 : 2 * WORD;
    return STATUS_OK;
}

/* Include/internal/pycore_interp*.h, pycore_gil.h: the table's offsets of GC and GIL fields start at another struct. */
static enum status derive_interp(struct debug_table *table, struct error *error) {
    struct layout *layout = &table->layout;
    layout_offset gc = table->interp.gc;
    TRY(require(table->gc.size <= layout->interp.size - gc, "the collector's state ends outside the interpreter",
                error));
    layout->interp.gc_collecting = gc + table->gc.collecting;
    if (layout_has(table->gc.frame))
        layout->interp.gc_frame = gc + table->gc.frame;
    /* struct pythreads begins with next_unique_id and head. */
    TRY(require(layout->interp.threads_head >= WORD, "the list of threads is at the interpreter's beginning", error));
    layout->interp.threads_next_id = layout->interp.threads_head - WORD;

    /* The table has no size for struct _gil_runtime_state: at most 4 words, two condition variables and two mutexes of
     * 48 bytes each (glibc on aarch64 has the largest), 232 in all. */
    struct layout_gil *gil = &layout->gil;
    gil->size = 256;
    layout_offset start = table->interp.gil;
    bool inside = table->interp.gil_locked >= start && table->interp.gil_last_holder >= start &&
                  table->interp.gil_locked - start < gil->size && table->interp.gil_last_holder - start < gil->size;
    TRY(require(inside && start % WORD == 0, "the GIL's fields lie outside it", error));
    gil->locked = table->interp.gil_locked - start;
    gil->last_holder = table->interp.gil_last_holder - start;
    return require(!layout_has(gil->enabled) || gil->enabled < gil->size, "the GIL's fields lie outside it", error);
}

/* Include/internal/pycore_frame.h (3.13), pycore_interpframe_structs.h (3.14+): f_executable, previous, f_funcobj,
 * f_globals, f_builtins, f_locals, frame_obj, instr_ptr; then stacktop (3.13: int) or stackpointer, and tlbc_index when
 * free-threaded; return_offset (uint16_t), owner (char). */
static enum status derive_frame(struct layout *layout, struct error *error) {
    struct layout_frame *frame = &layout->frame;
    TRY(require(frame->previous == frame->f_executable + WORD && frame->instr_ptr == frame->previous + 6 * WORD,
                "the frame's pointers are not where they were", error));
    frame->f_funcobj = frame->previous + WORD;
    frame->f_globals = frame->previous + 2 * WORD;
    frame->f_builtins = frame->previous + 3 * WORD;
    frame->f_locals = frame->previous + 4 * WORD;
    frame->frame_obj = frame->previous + 5 * WORD;
    layout_offset end = frame->instr_ptr + WORD;
    if (layout_has(frame->stackpointer)) {
        TRY(require(frame->stackpointer == end, "the frame's stack pointer is not where it was", error));
        end += WORD;
    } else {
        frame->stacktop = end;
        end += INT;
    }
    if (layout_has(frame->tlbc_index)) {
        TRY(require(frame->tlbc_index == end, "the frame's bytecode index is not where it was", error));
        end += INT;
    }
    frame->return_offset = end;
    return require(frame->owner == end + 2 && frame->localsplus > frame->owner, "the frame's owner is not where it was",
                   error);
}

/* Include/cpython/code.h: co_consts, co_names, co_exceptiontable, co_flags, co_argcount, co_posonlyargcount,
 * co_kwonlyargcount, co_stacksize, co_firstlineno, co_nlocalsplus, co_framesize, co_nlocals, co_ncellvars,
 * co_nfreevars, co_version (all int), co_localsplusnames; and at the end _co_firsttraceable (int), co_extra, co_tlbc
 * (3.14+, free-threaded), co_code_adaptive. */
static enum status derive_code(struct layout *layout, struct error *error) {
    struct layout_code *code = &layout->code;
    TRY(require(code->co_argcount == layout->object.var_size + 3 * WORD + INT &&
                    code->co_firstlineno == code->co_argcount + 4 * INT &&
                    code->co_localsplusnames == code->co_firstlineno + 7 * INT,
                "the code object's numbers are not where they were", error));
    code->co_flags = code->co_argcount - INT;
    code->co_names = code->co_flags - 2 * WORD;
    code->co_consts = code->co_flags - 3 * WORD;
    code->co_posonlyargcount = code->co_argcount + INT;
    code->co_kwonlyargcount = code->co_argcount + 2 * INT;
    code->co_stacksize = code->co_argcount + 3 * INT;
    code->co_nlocalsplus = code->co_firstlineno + INT;
    code->co_framesize = code->co_firstlineno + 2 * INT;
    code->co_nlocals = code->co_firstlineno + 3 * INT;
    bool has_tlbc = layout_has(code->co_tlbc);
    layout_offset end = has_tlbc ? code->co_tlbc : code->co_code_adaptive;
    TRY(require(!has_tlbc || code->co_code_adaptive == end + WORD, "the bytecode is not where it was", error));
    TRY(require(end >= code->co_linetable + 3 * WORD, "the bytecode lies before its line table", error));
    code->co_firsttraceable = end - 2 * WORD;
    return STATUS_OK;
}

/* Include/cpython/object.h. PyTypeObject has been extended at its end only; PyHeapTypeObject is PyTypeObject, then
 * 4 async, 36 number, 3 mapping, 10 sequence and 2 buffer functions, ht_name, ht_slots, ht_qualname, ht_cached_keys. */
static enum status derive_type(struct debug_table *table, struct error *error) {
    struct layout_type *type = &table->layout.type;
    layout_offset basicsize = type->tp_name + WORD;
    layout_offset dictoffset = type->tp_flags + 15 * WORD;
    layout_offset cached_keys = type->size + 58 * WORD;
    if (layout_has(type->tp_basicsize)) { /* 3.15+ gives these */
        TRY(require(type->tp_basicsize == basicsize && type->tp_dictoffset == dictoffset &&
                        type->ht_cached_keys == cached_keys,
                    "the type object's fields are not where they were", error));
    }
    TRY(require(type->tp_name == table->layout.object.var_size && type->tp_flags > basicsize + WORD &&
                    dictoffset + WORD <= type->size,
                "the type object's fields are not where they were", error));
    type->tp_basicsize = basicsize;
    type->tp_itemsize = basicsize + WORD;
    type->tp_base = type->tp_flags + 11 * WORD;
    type->tp_dict = type->tp_flags + 12 * WORD;
    type->tp_dictoffset = dictoffset;
    type->ht_name = cached_keys - 3 * WORD;
    type->ht_qualname = cached_keys - WORD;
    type->ht_cached_keys = cached_keys;
    return STATUS_OK;
}

/* Include/internal/pycore_dict.h: PyDictKeysObject and struct _dictvalues are not in the table and hold no object
 * header; what a free-threaded build adds (dk_mutex, a byte) fits in the padding. pycore_object.h: MANAGED_DICT_OFFSET.
 */
static enum status derive_dict(struct debug_table *table, struct error *error) {
    struct layout *layout = &table->layout;
    layout_offset header = layout->object.size;
    TRY(require(layout->dict.ma_keys >= header + WORD && layout->dict.ma_values == layout->dict.ma_keys + WORD,
                "the dict's fields are not where they were", error));
    layout->dict.ma_used = header;
    layout->dict_keys.dk_log2_size = 8;
    layout->dict_keys.dk_log2_index_bytes = 9;
    layout->dict_keys.dk_kind = 10;
    layout->dict_keys.dk_nentries = 24;
    layout->dict_keys.dk_indices = 32;
    layout->managed.dict_back = layout->free_threaded ? WORD : 3 * WORD;
    layout->managed.inline_values = true;
    layout->managed.values_capacity = 0;
    layout->managed.values_size = 1;
    layout->managed.values_valid = 3;
    layout->managed.values_items = 8;
    return STATUS_OK;
}

/* Include/cpython/unicodeobject.h: PyASCIIObject, then utf8_length and utf8 to PyCompactUnicodeObject, then data to
 * PyUnicodeObject. The state is interned, kind (3 bits), compact, ascii; interned has 2 bits, but 8 in free-threaded
 * builds from 3.14 on, so that it can be changed atomically. */
static enum status derive_unicode(struct debug_table *table, struct error *error) {
    struct layout *layout = &table->layout;
    struct layout_unicode *unicode = &layout->unicode;
    layout_offset compact_size = unicode->ascii_size + 2 * WORD;
    TRY(require(unicode->length == layout->object.size && unicode->state == unicode->length + 2 * WORD &&
                    unicode->ascii_size >= unicode->state + INT && table->size.unicode == compact_size + WORD &&
                    (!layout_has(unicode->compact_size) || unicode->compact_size == compact_size),
                "the string's fields are not where they were", error));
    unicode->compact_size = compact_size;
    unicode->data = compact_size;
    unicode->kind_shift = layout->free_threaded && layout_minor(layout) >= 14 ? 8 : 2;
    unicode->compact_shift = (uint8_t)(unicode->kind_shift + 3);
    unicode->ascii_shift = (uint8_t)(unicode->kind_shift + 4);
    return STATUS_OK;
}

/* Containers and numbers whose fields stand right behind the header. */
static enum status derive_builtins(struct debug_table *table, struct error *error) {
    struct layout *layout = &table->layout;
    layout_offset header = layout->object.size;
    TRY(require(table->ob_size.tuple == header && table->ob_size.list == header && table->ob_size.bytes == header,
                "ob_size is not behind the object header", error));
    layout_offset items = layout->object.var_size;
    TRY(require(layout->tuple.ob_item >= items && layout->list.ob_item >= items && layout->bytes.ob_sval >= items &&
                    layout->long_.ob_digit == layout->long_.lv_tag + WORD,
                "an object's value lies in its header", error));
    /* Include/cpython/setobject.h: fill, used, mask, table. The table has it from 3.14 on. */
    if (!layout_has(layout->set.used)) {
        layout->set.used = header + WORD;
        layout->set.mask = header + 2 * WORD;
        layout->set.table = header + 3 * WORD;
    }
    /* Include/cpython/bytearrayobject.h: ob_alloc, ob_bytes, ob_start. */
    layout->bytearray.ob_start = layout->object.var_size + 2 * WORD;
    /* Include/complexobject.h: cval alone. */
    layout->complex_.cval = header;
    return STATUS_OK;
}

/* Things that are called, and what holds names. */
static void derive_callables(struct layout *layout) {
    layout_offset header = layout->object.size;
    /* Include/cpython/funcobject.h: func_globals, func_builtins, func_name, func_qualname, func_code. */
    layout->function.func_name = header + 2 * WORD;
    layout->function.func_qualname = header + 3 * WORD;
    layout->function.func_code = header + 4 * WORD;
    /* Include/cpython/classobject.h, methodobject.h, cellobject.h */
    layout->method.im_func = header;
    layout->method.im_self = header + WORD;
    layout->builtin.m_ml = header;
    layout->builtin.m_self = header + WORD;
    layout->cell.ob_ref = header;
    /* Include/internal/pycore_moduleobject.h: md_dict, md_def (until 3.14), md_state, md_weaklist, md_name. */
    layout->module.md_dict = header;
    layout->module.md_name = header + (layout_minor(layout) >= 15 ? 3U : 4U) * WORD;
}

/* Include/cpython/genobject.h (3.13), pycore_interpframe_structs.h (3.14+): gi_weakreflist, gi_name, gi_qualname,
 * gi_exc_state (2 words), gi_origin_or_finalizer, gi_hooks_inited, gi_closed, gi_running_async, gi_frame_state (bytes),
 * gi_iframe. The table has it from 3.14 on, but for gi_qualname. */
static enum status derive_gen(struct layout *layout, struct error *error) {
    struct layout_gen *gen = &layout->gen;
    layout_offset header = layout->object.size;
    if (!layout_has(gen->gi_name)) {
        gen->gi_name = header + WORD;
        gen->gi_frame_state = header + 6 * WORD + 3;
        gen->gi_iframe = header + 7 * WORD;
    }
    gen->gi_qualname = gen->gi_name + WORD;
    return require(gen->gi_name >= header && gen->gi_iframe > gen->gi_qualname &&
                       gen->gi_frame_state > gen->gi_qualname,
                   "a generator's fields are not where they were", error);
}

/* Include/cpython/pystate.h: struct _stack_chunk, unchanged since 3.11. */
static void derive_stack_chunk(struct layout *layout) {
    layout->stack_chunk.previous = 0;
    layout->stack_chunk.size = WORD;
    layout->stack_chunk.top = 2 * WORD;
    layout->stack_chunk.data = 3 * WORD;
}

enum status debug_offsets_derive(struct debug_table *table, struct error *error) {
    struct layout *layout = &table->layout;
    layout->tagged_refs = layout_minor(layout) >= 14;
    layout->first_boundary_owner = 3;
    TRY(derive_object(layout, error));
    TRY(derive_interp(table, error));
    TRY(derive_frame(layout, error));
    TRY(derive_code(layout, error));
    TRY(derive_type(table, error));
    TRY(derive_dict(table, error));
    TRY(derive_unicode(table, error));
    TRY(derive_builtins(table, error));
    derive_callables(layout);
    TRY(derive_gen(layout, error));
    derive_stack_chunk(layout);
    return STATUS_OK;
}
