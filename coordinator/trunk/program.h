/* Moved: goes when nobody names it any more. */
#pragma once
#include "trunk/program.h"
