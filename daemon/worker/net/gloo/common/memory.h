/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stands for <gloo/common/memory.h>, which Gloo's pair.h includes and Debian's libgloo-dev leaves
 * out. It is looked for behind the system's folders (Makefile: -idirafter). Only the sizes count
 * here: the library has the code that uses these types. Source: Gloo at commit 5b14351, the one
 * that Debian packages, gloo/common/memory.h: each of them holds one standard pointer.
 */
#pragma once

#ifdef __cplusplus
#include <memory>

namespace gloo
{

template <typename T> class NonOwningPtr final
{
	std::shared_ptr<T> ptr_;
};

template <typename T> class WeakNonOwningPtr final
{
	std::weak_ptr<T> ptr_;
};

template <typename T> class ShareableNonOwningPtr final
{
	std::shared_ptr<T> ptr_;
};

} // namespace gloo
#endif
