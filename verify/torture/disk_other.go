//go:build !linux

package torture

import "errors"

// OwnMounts does nothing here: the torture leaves the fault disk-full out.
func OwnMounts() error { return nil }

func mountDisk(string) (bool, error) { return false, nil }

func unmountDisk(string) error { return nil }

func (d *disk) fill() (free func() error, err error) { return nil, errors.ErrUnsupported }
