// Package bridge tests fencelock's bridge beside the real locks of other libraries.
package bridge
