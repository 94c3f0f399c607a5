/* C functions that do nothing, one for each way in which CPython calls C, and clocks for those that do something.
 * fine_mixes.py finds out with them what a call itself costs. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdlib.h>
#include <time.h>

#if PY_VERSION_HEX < 0x03090000
#define PyObject_Vectorcall _PyObject_Vectorcall
#endif
#ifndef PY_VECTORCALL_ARGUMENTS_OFFSET
#define PY_VECTORCALL_ARGUMENTS_OFFSET ((size_t)1 << (8 * sizeof(size_t) - 1))
#endif

enum { BATCH = 32, ARGUMENTS_MAX = 8 };

static PyObject *nothing(void) {
    Py_INCREF(Py_None);
    return Py_None;
}

static PyObject *call_o(PyObject *self, PyObject *argument) {
    (void)self;
    (void)argument;
    return nothing();
}

static PyObject *call_varargs(PyObject *self, PyObject *arguments) {
    (void)self;
    (void)arguments;
    return nothing();
}

static PyObject *call_keywords(PyObject *self, PyObject *arguments, PyObject *keywords) {
    (void)keywords;
    return call_varargs(self, arguments);
}

static PyObject *call_fast(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    (void)self;
    (void)arguments;
    (void)count;
    return nothing();
}

static PyObject *call_fast_keywords(PyObject *self, PyObject *const *arguments, Py_ssize_t count, PyObject *names) {
    (void)names;
    return call_fast(self, arguments, count);
}

/* As sum() does, it makes a number that is not one of those that exist already. */
static PyObject *call_number(PyObject *self, PyObject *const *arguments, Py_ssize_t count, PyObject *names) {
    (void)self;
    (void)arguments;
    (void)count;
    (void)names;
    return PyLong_FromLong(1770);
}

static PyObject *make(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
    (void)type;
    (void)arguments;
    (void)keywords;
    return nothing();
}

static PyObject *make_fast(PyObject *type, PyObject *const *arguments, size_t count, PyObject *names) {
    (void)type;
    (void)arguments;
    (void)count;
    (void)names;
    return nothing();
}

/* The calling convention of a builtin: METH_… */
static PyObject *convention(PyObject *self, PyObject *function) {
    (void)self;
    if (!PyCFunction_Check(function))
        return PyLong_FromLong(-1);
    return PyLong_FromLong(PyCFunction_GetFlags(function) & 0x8f);
}

static PyObject *has_vectorcall(PyObject *self, PyObject *type) {
    (void)self;
    return PyBool_FromLong(PyType_Check(type) && ((PyTypeObject *)type)->tp_vectorcall != NULL);
}

static double now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

struct call {
    PyObject *function;
    PyObject *arguments[1 + ARGUMENTS_MAX];
    size_t count;
    long times;
};

static int parse_call(PyObject *arguments, struct call *call) {
    PyObject *tuple;
    if (!PyArg_ParseTuple(arguments, "OO!l", &call->function, &PyTuple_Type, &tuple, &call->times))
        return 0;
    call->count = (size_t)PyTuple_GET_SIZE(tuple);
    for (size_t i = 0; i < call->count && i < ARGUMENTS_MAX; i++)
        call->arguments[i + 1] = PyTuple_GET_ITEM(tuple, (Py_ssize_t)i);
    return 1;
}

static PyObject *run_call(struct call *call) {
    return PyObject_Vectorcall(call->function, call->arguments + 1, call->count | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
}

static int compare(const void *left, const void *right) {
    const double *a = left, *b = right;
    return (*a > *b) - (*a < *b);
}

/* alone(function, arguments, times): nanoseconds of a call with nothing else going on, with what the clock costs; the
 * release of its result is not in it. The mean without the slowest tenth. */
static PyObject *alone(PyObject *self, PyObject *arguments) {
    (void)self;
    struct call call = {0};
    if (!parse_call(arguments, &call))
        return NULL;
    double *spent = malloc((size_t)call.times * sizeof *spent), sum = 0;
    long kept = call.times * 9 / 10;
    if (spent == NULL || kept == 0)
        return PyErr_NoMemory();
    for (long i = 0; i < call.times; i++) {
        double start = now_ns();
        PyObject *result = run_call(&call);
        spent[i] = now_ns() - start;
        if (result == NULL) {
            free(spent);
            return NULL;
        }
        Py_DECREF(result);
    }
    qsort(spent, (size_t)call.times, sizeof *spent, compare);
    for (long i = 0; i < kept; i++)
        sum += spent[i];
    free(spent);
    return PyFloat_FromDouble(sum / (double)kept);
}

/* released(function, arguments, times): nanoseconds that the release of a call's result takes, at the least. */
static PyObject *released(PyObject *self, PyObject *arguments) {
    (void)self;
    struct call call = {0};
    PyObject *results[BATCH];
    double least = 1e18;
    if (!parse_call(arguments, &call))
        return NULL;
    for (long i = 0; i < call.times; i++) {
        for (int k = 0; k < BATCH; k++) {
            results[k] = run_call(&call);
            if (results[k] == NULL)
                return NULL;
        }
        double start = now_ns();
        for (int k = 0; k < BATCH; k++)
            Py_DECREF(results[k]);
        double spent = (now_ns() - start) / BATCH;
        least = spent < least ? spent : least;
    }
    return PyFloat_FromDouble(least);
}

#define AS_FUNCTION(function) ((PyCFunction)(void (*)(void))(function))
#define CONVENTIONS                                                                                                    \
    {"o", call_o, METH_O, NULL}, {"noargs", call_o, METH_NOARGS, NULL}, {"varargs", call_varargs, METH_VARARGS, NULL}, \
        {"keywords", AS_FUNCTION(call_keywords), METH_VARARGS | METH_KEYWORDS, NULL},                                  \
        {"fast", AS_FUNCTION(call_fast), METH_FASTCALL, NULL}, {                                                       \
        "fast_keywords", AS_FUNCTION(call_fast_keywords), METH_FASTCALL | METH_KEYWORDS, NULL                          \
    }

static PyMethodDef methods[] = {CONVENTIONS, {NULL, NULL, 0, NULL}};
static PyMethodDef functions[] = {
    CONVENTIONS,
    {"number", AS_FUNCTION(call_number), METH_FASTCALL | METH_KEYWORDS, NULL},
    {"convention", convention, METH_O, NULL},
    {"has_vectorcall", has_vectorcall, METH_O, NULL},
    {"alone", alone, METH_VARARGS, NULL},
    {"released", released, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject object_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "empty_calls.Object",
    .tp_basicsize = sizeof(PyObject),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_methods = methods,
    .tp_new = PyType_GenericNew,
};
static PyTypeObject made_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "empty_calls.Made",
    .tp_basicsize = sizeof(PyObject),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = make,
};
static PyTypeObject made_fast_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "empty_calls.MadeFast",
    .tp_basicsize = sizeof(PyObject),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = make,
    .tp_vectorcall = make_fast,
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "empty_calls", NULL, -1, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_empty_calls(void) {
    PyTypeObject *const types[] = {&object_type, &made_type, &made_fast_type};
    static const char *const names[] = {"Object", "Made", "MadeFast"};
    PyObject *module = PyModule_Create(&definition);
    for (int i = 0; i < 3; i++) {
        if (module == NULL || PyType_Ready(types[i]) < 0)
            return NULL;
        Py_INCREF(types[i]);
        if (PyModule_AddObject(module, names[i], (PyObject *)types[i]) < 0)
            return NULL;
    }
#ifdef Py_GIL_DISABLED
    PyUnstable_Module_SetGIL(module, Py_MOD_GIL_NOT_USED);
#endif
    return module;
}
