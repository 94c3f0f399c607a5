#include "cpython/repr.h"
