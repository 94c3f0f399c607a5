/* What a `_Py_DebugOffsets` says, between the two steps that make a layout of it: debug_offsets.c reads and checks
 * the table, debug_offsets_derive.c adds what it lacks. For those two files only. */
#ifndef STROBE_CPYTHON_DEBUG_OFFSETS_H
#define STROBE_CPYTHON_DEBUG_OFFSETS_H

#include "cpython/layout.h"

/* The layout as far as the table gives it, and what it gives beside: sizes of CPython's structs, and offsets that are
 * relative to another struct than the one strobe wants them for. */
struct debug_table {
    struct layout layout;
    struct {
        layout_offset gc;  /* struct _gc_runtime_state in PyInterpreterState */
        layout_offset gil; /* struct _gil_runtime_state in PyInterpreterState */
        layout_offset gil_locked;
        layout_offset gil_last_holder;
    } interp;
    struct {
        layout_offset size;
        layout_offset collecting;
        layout_offset frame;
    } gc;
    struct {
        layout_offset tuple, list, bytes; /* ob_size of each */
    } ob_size;
    struct {
        layout_offset heap_type, tuple, list, set, dict, float_, long_, bytes, unicode, gen;
    } size;
};

/* Fills table->layout with what follows from the table, and checks that its groups agree with each other. */
enum status debug_offsets_derive(struct debug_table *table, struct error *error) MUST_USE;

#endif
