#include "cpython/runtime.h"
