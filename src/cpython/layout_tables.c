#include "cpython/layout.h"
