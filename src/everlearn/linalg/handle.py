"""Arguments of a kernel that are unpacked once instead of at every call.

numba takes the arrays of a named tuple out of their Python objects whenever a kernel is called: 0.2 us each, which for
a single row is more than the arithmetic. A `Handle` is a reference that compiled code holds on the same arrays. A
kernel makes it, ``return hold(content)``, and others read ``handle.content``. What a kernel changes in the arrays,
Python sees, and the other way round.
"""

from typing import Any

import numba
from numba import types
from numba.core import cgutils
from numba.core.runtime.context import NRTContext
from numba.experimental import structref
from numba.extending import intrinsic


def machine_code(kernel: Any, *arguments: Any) -> Any:
    """A kernel for arguments of the types of these, which does not look at what it is given."""
    if numba.config.DISABLE_JIT:
        return kernel
    return kernel.compile(tuple(numba.typeof(argument) for argument in arguments))


if numba.config.DISABLE_JIT:

    class Handle:
        """A reference to the content of a named tuple."""

        def __init__(self, content: Any) -> None:
            self.content = content

    hold = Handle

    def lent(handle: Any) -> Any:
        """The content of a handle, for a function that keeps none of it."""
        return handle.content
else:

    @structref.register
    class _HandleType(types.StructRef):
        """Type of a handle inside kernels, by the type of its content."""

    class Handle(structref.StructRefProxy):  # type: ignore[no-redef, misc]
        """A reference to the content of a named tuple."""

        # numba asks for the type at every call: the slot itself answers, where structref has a property in Python.
        _numba_type_ = structref.StructRefProxy._type

    structref.define_boxing(_HandleType, Handle)

    # Not the constructor that structref makes: it is a function of hundreds of numbers, compiled for half a second.
    @intrinsic  # type: ignore[no-redef]
    def hold(typing, content):
        """A handle on a named tuple."""
        kind = _HandleType([("content", content)])

        def code(context, builder, signature, arguments):
            empty = structref.new._defn(typing, types.TypeRef(kind))[1]
            handle = empty(context, builder, None, ())
            structref._Utils(context, builder, kind).get_data_struct(handle).content = arguments[0]
            context.nrt.incref(builder, content, arguments[0])
            return handle

        return kind(content), code

    @intrinsic  # type: ignore[no-redef]
    def lent(typing, handle):
        """The content of a handle, for an `inner` function: without counts of the references to its arrays.

        To count them takes longer than the arithmetic of a single row: 4.6 us for the 70 arrays of a mixture.
        """
        content = handle.field_dict["content"]

        def code(context, builder, signature, arguments):
            meminfo = structref._Utils(context, builder, handle).get_struct_ref(arguments[0]).meminfo
            # The place of the data is known without the counts, which `inner` functions have switched off.
            data = NRTContext(context, enabled=True).meminfo_data(builder, meminfo)
            kind = handle.get_data_type()
            struct = context.data_model_manager[kind].get_value_type()
            reference = cgutils.create_struct_proxy(kind)(
                context, builder, ref=builder.bitcast(data, struct.as_pointer())
            )
            return reference.content

        return content(handle), code
